//! Pictures for the page.

use charts_rs::{BarChart, HorizontalBarChart, Series};

/// One bar for each name.
pub fn bars(title: &str, bars: &[(String, f64)]) -> Option<String> {
    let (names, values): (Vec<String>, Vec<f32>) = bars
        .iter()
        .map(|(name, value)| (name.clone(), *value as f32))
        .unzip();
    let mut chart =
        HorizontalBarChart::new(vec![Series::new("ratio to bare".to_owned(), values)], names);
    chart.width = 800.0;
    chart.height = 480.0;
    chart.title.text = title.to_owned();
    chart.legend.show = Some(false);
    chart.svg().ok()
}

/// Bars side by side for each name.
pub fn groups(title: &str, names: &[&str], groups: &[(String, Vec<f64>)]) -> Option<String> {
    let series = groups.iter().map(|(name, values)| {
        Series::new(
            name.clone(),
            values.iter().map(|value| *value as f32).collect(),
        )
    });
    let mut chart = BarChart::new(
        series.collect(),
        names.iter().map(|name| (*name).to_owned()).collect(),
    );
    chart.width = 800.0;
    chart.height = 400.0;
    chart.title.text = title.to_owned();
    chart.svg().ok()
}
