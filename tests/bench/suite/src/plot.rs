//! Pictures for the page.

use charts_rs::{BarChart, ChartBase, HorizontalBarChart, Series};

/// One bar for each name, the first one at the top.
pub fn bars(title: &str, bars: &[(String, f64)]) -> Option<String> {
    // Names are measured by a font that readers may not have: blanks leave room for a wider one.
    let named = |(name, value): &(String, f64)| {
        (
            format!("{name}\u{a0}\u{a0}\u{a0}\u{a0}\u{a0}"),
            *value as f32,
        )
    };
    let (names, values): (Vec<String>, Vec<f32>) = bars.iter().rev().map(named).unzip();
    let mut series = Series::new("ratio to bare".to_owned(), values);
    series.label_show = true;
    let mut chart = HorizontalBarChart::new(vec![series], names);
    chart.legend.show = Some(false);
    decorate(&mut chart, title, 480.0);
    chart.svg().ok()
}

/// Bars side by side for each name.
pub fn groups(title: &str, names: &[&str], groups: &[(String, Vec<f64>)]) -> Option<String> {
    let rounded = |value: &f64| (value * 100.0).round() as f32 / 100.0;
    let series = groups.iter().map(|(name, values)| {
        let mut series = Series::new(name.clone(), values.iter().map(rounded).collect());
        series.label_show = true;
        series
    });
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let mut chart = BarChart::new(series.collect(), names);
    decorate(&mut chart, title, 400.0);
    chart.svg().ok()
}

fn decorate(chart: &mut ChartBase, title: &str, height: f32) {
    chart.width = 860.0;
    chart.height = height;
    chart.margin.right = 40.0;
    chart.title.text = title.to_owned();
    chart.title.font.size = 15.0;
    chart.series.label.font.size = 11.0;
    chart.legend.position = Some(charts_rs::Position::Bottom);
}
