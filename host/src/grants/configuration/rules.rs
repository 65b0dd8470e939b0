//! The values that the operator configured for a handler: `[grant.config]`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use crate::values::{Invalid, Shape, Value};

/// Names and values. Values may be secrets: `Debug` shows only the names.
/// Clones share them: they can change while handlers run.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Values(Arc<RwLock<Arc<BTreeMap<String, String>>>>);

impl From<BTreeMap<String, String>> for Values {
    fn from(values: BTreeMap<String, String>) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(values))))
    }
}

impl From<Values> for BTreeMap<String, String> {
    fn from(values: Values) -> Self {
        Arc::unwrap_or_clone(values.now())
    }
}

impl Values {
    /// The names, in order.
    pub fn names(&self) -> Vec<String> {
        self.now().keys().cloned().collect()
    }

    /// The present values.
    pub(crate) fn now(&self) -> Arc<BTreeMap<String, String>> {
        Arc::clone(&self.0.read())
    }

    /// Give all clones the values of another one.
    pub fn adopt(&self, other: &Self) {
        let values = other.now();
        *self.0.write() = values;
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.now() == other.now()
    }
}

impl Eq for Values {}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl Value for Values {
    const TYPE: &'static str = "table of strings";
    const SHAPE: Shape = Shape::Table;

    fn parse(text: &str) -> Result<Self, Invalid> {
        // The error of the parser could repeat a value.
        serde_json::from_str(text).map_err(|_| {
            Invalid::new("is not a JSON object of strings")
                .hint("in a file, write a table: `[grant.config]`")
        })
    }

    fn show(&self) -> String {
        let names = self.names();
        match names.is_empty() {
            true => "no value".to_owned(),
            false => format!("values for {}", names.join(", ")),
        }
    }
}
