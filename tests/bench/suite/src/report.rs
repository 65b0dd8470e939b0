//! Tables, targets, and the generated blocks of the page.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{Outcome, fail};

/// What a part of the suite has to say.
pub struct Report {
    /// The results as they are kept.
    pub raw: Value,
    /// The generated block of the page.
    pub text: String,
    /// Pictures: name and SVG.
    pub plots: Vec<(&'static str, String)>,
}

/// The bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// No bound.
    Open,
}

impl Target {
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
            Self::Open => true,
        }
    }

    /// The bound, and whether the figure keeps it.
    pub fn judge(self, value: f64) -> String {
        let bound = match self {
            Self::AtLeast(bound) => format!("at least {bound}"),
            Self::AtMost(bound) => format!("at most {bound}"),
            Self::Open => return "-".to_owned(),
        };
        let verdict = if self.is_met(value) {
            "met"
        } else {
            "**missed**"
        };
        format!("{bound}: {verdict}")
    }
}

/// A table in Markdown. Columns after the first `texts` ones are aligned to the right.
pub fn table<const N: usize>(texts: usize, names: [&str; N], rows: &[[String; N]]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule: String = (0..N)
        .map(|column| if column < texts { "---|" } else { "---:|" })
        .collect();
    let mut text = line(&names.map(str::to_owned));
    text.push_str(&format!("|{rule}\n"));
    rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

/// Write the text between the marks of this block.
pub fn replace_block(page: &Path, block: &str, text: &str) -> Outcome<()> {
    let before = fs::read_to_string(page)?;
    let (begin, end) = (
        format!("<!-- bench:{block} -->\n"),
        format!("<!-- end bench:{block} -->"),
    );
    let Some((head, rest)) = before.split_once(&begin) else {
        return fail(format!("{} has no mark {begin}", page.display()));
    };
    let Some((_, tail)) = rest.split_once(&end) else {
        return fail(format!("{} has no mark {end}", page.display()));
    };
    fs::write(
        page,
        format!("{head}{begin}{}\n{end}{tail}", text.trim_end()),
    )?;
    Ok(())
}

/// `123456.7` -> `123 k`.
pub fn thousands(value: f64) -> String {
    match value {
        ..10_000.0 => format!("{:.1} k", value / 1e3),
        _ => format!("{:.0} k", value / 1e3),
    }
}

pub fn mebibytes(bytes: f64) -> String {
    format!("{:.0} MiB", bytes / f64::from(1 << 20))
}

pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => f64::midpoint(values[n / 2 - 1], values[n / 2]),
        n => values[n / 2],
    }
}

/// The median of one figure of all measurements.
pub fn middle<T>(all: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    median(&all.iter().map(figure).collect::<Vec<_>>())
}

/// The value below which this share of the sorted values lies: one that occurred.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// The least and the most.
pub fn range(values: &[f64], show: impl Fn(f64) -> String) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} to {}", show(least), show(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_replaced_and_the_rest_stays() -> Outcome<()> {
        let folder = tempfile::tempdir()?;
        let page = folder.path().join("page.md");
        fs::write(&page, "a\n<!-- bench:x -->\nold\n<!-- end bench:x -->\nb\n")?;
        replace_block(&page, "x", "new\n")?;
        assert_eq!(
            fs::read_to_string(&page)?,
            "a\n<!-- bench:x -->\nnew\n<!-- end bench:x -->\nb\n"
        );
        assert!(replace_block(&page, "y", "new").is_err());
        Ok(())
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&sorted, 0.5), 50.0);
        assert_eq!(percentile(&sorted, 0.999), 100.0);
        assert_eq!(median(&[3.0, 1.0]), 2.0);
    }

    #[test]
    fn a_missed_target_is_said() {
        assert_eq!(
            Target::AtLeast(0.43).judge(0.42),
            "at least 0.43: **missed**"
        );
        assert_eq!(Target::AtMost(5.0).judge(4.9), "at most 5: met");
    }
}
