//! Charts as SVG.
//!
//! All look alike: the legend is next to the chart, floors (names that begin with `raw`) are grey
//! and dashed, redbolt has warm colours, and the others have cold ones.

mod axis;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use self::axis::Axis;

/// A line chart.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// The heading.
    pub title: String,
    /// The label of the horizontal axis, with its unit.
    pub x: String,
    /// The label of the vertical axis, with its unit.
    pub y: String,
    /// `true` if `x` is logarithmic.
    pub log_x: bool,
    /// `true` if `y` is logarithmic.
    pub log_y: bool,
    /// The name and the points of each line, from left to right.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// A bar chart with horizontal bars, each labelled.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// The heading.
    pub title: String,
    /// The label of the horizontal axis, with its unit.
    pub x: String,
    /// `true` if the axis is logarithmic.
    pub log_x: bool,
    /// The name, the value and its range, from the top.
    pub rows: Vec<(String, f64, (f64, f64))>,
}

/// The distribution of times, by percentile.
#[derive(Clone, Debug, Default)]
pub struct Percentiles {
    /// The heading.
    pub title: String,
    /// The label of the vertical axis, with its unit. It is logarithmic.
    pub y: String,
    /// The name and the `(percentile, value)` points of each line.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// Draws lines.
///
/// # Errors
///
/// There is nothing to draw.
pub fn lines(chart: &Lines) -> Result<String> {
    let points = || chart.series.iter().flat_map(|(_, points)| points);
    let x = Axis::of(points().map(|point| point.0), chart.log_x);
    let y = Axis::of(points().map(|point| point.1), chart.log_y);
    draw_lines(chart, x, y, true)
}

/// Draws the distribution of times.
///
/// # Errors
///
/// There is nothing to draw.
pub fn percentiles(chart: &Percentiles) -> Result<String> {
    let tail = |percentile: f64| 100.0 / (100.0 - percentile);
    let moved =
        |points: &Vec<(f64, f64)>| points.iter().map(|&(at, value)| (tail(at), value)).collect();
    let series: Vec<(String, Vec<_>)> =
        chart.series.iter().map(|(name, points)| (name.clone(), moved(points))).collect();
    let ticks = [0.0, 50.0, 90.0, 99.0, 99.9].map(|at| (tail(at), format!("{at} %"))).to_vec();
    let y = Axis::of(series.iter().flat_map(|(_, points)| points).map(|point| point.1), true);
    let (title, y_name) = (chart.title.clone(), chart.y.clone());
    let x = "part that took no longer".to_owned();
    let all = Lines { title, x, y: y_name, log_x: true, log_y: true, series };
    draw_lines(&all, Axis::named(ticks), y, false)
}

fn draw_lines(chart: &Lines, x: Axis, y: Axis, dots: bool) -> Result<String> {
    let mut svg = String::new();
    {
        let root = page(&mut svg, HEIGHT)?;
        let (drawing, legend) = root.split_horizontally(WIDTH - LEGEND);
        let mut area = ChartBuilder::on(&drawing)
            .caption(&chart.title, (FONT, TITLE_SIZE))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)
            .map_err(broken)?;
        area.configure_mesh()
            .x_desc(&chart.x)
            .y_desc(&chart.y)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .label_style((FONT, TEXT_SIZE))
            .axis_desc_style((FONT, TEXT_SIZE))
            .draw()
            .map_err(broken)?;
        for (at, (name, points)) in chart.series.iter().enumerate() {
            let look = Look::of(&chart.series, at);
            let points: Vec<_> =
                points.iter().copied().filter(|point| point.1.is_finite()).collect();
            look.line(&mut area, &points)?;
            if dots {
                let dot = |&point| Circle::new(point, 3, look.color.filled());
                area.draw_series(points.iter().map(dot)).map_err(broken)?;
            }
            look.legend(&legend, at, name)?;
        }
        root.present().map_err(broken)?;
    }
    Ok(svg)
}

/// Draws bars. On a logarithmic axis, on which a bar's length means nothing, it draws a dot at its
/// end.
///
/// # Errors
///
/// There is nothing to draw.
pub fn bars(chart: &Bars) -> Result<String> {
    let values = chart.rows.iter().flat_map(|&(_, value, (low, high))| [value, low, high]);
    let x = Axis::of(values, chart.log_x);
    let rows = chart.rows.len() as f64;
    let mut svg = String::new();
    {
        let root = page(&mut svg, ROW * chart.rows.len() as u32 + FRAME)?;
        let start = x.start();
        let mut area = ChartBuilder::on(&root)
            .caption(&chart.title, (FONT, TITLE_SIZE))
            .margin(12)
            .margin_right(40)
            .x_label_area_size(44)
            .y_label_area_size(NAMES)
            .build_cartesian_2d(x, RangedCoordf64::from(rows..0.0))
            .map_err(broken)?;
        area.configure_mesh()
            .x_desc(&chart.x)
            .disable_y_mesh()
            .y_labels(0)
            .bold_line_style(GRID)
            .axis_style(AXIS)
            .label_style((FONT, TEXT_SIZE))
            .axis_desc_style((FONT, TEXT_SIZE))
            .draw()
            .map_err(broken)?;
        for (at, (name, value, (low, high))) in chart.rows.iter().enumerate() {
            let (middle, color) = (at as f64 + 0.5, Kind::of(name).colors()[0]);
            let (_, y) = area.backend_coord(&(start, middle));
            root.draw(&Text::new(name.clone(), (NAMES as i32 + 4, y), to_the_left()))
                .map_err(broken)?;
            if !value.is_finite() {
                continue;
            }
            // The spread is visible across a bar, but not across a dot.
            let spread = PathElement::new([(*low, middle), (*high, middle)], BLACK.stroke_width(1));
            if chart.log_x {
                let dot = Circle::new((*value, middle), 5, color.filled());
                area.draw_series([spread]).map_err(broken)?;
                area.draw_series([dot]).map_err(broken)?;
            } else {
                let corners = [(start, middle - 0.32), (*value, middle + 0.32)];
                area.draw_series([Rectangle::new(corners, color.filled())]).map_err(broken)?;
                area.draw_series([spread]).map_err(broken)?;
            }
        }
        root.present().map_err(broken)?;
    }
    Ok(svg)
}

type Page<'s> = DrawingArea<SVGBackend<'s>, Shift>;
type Area<'a, 's> = ChartContext<'a, SVGBackend<'s>, Cartesian2d<Axis, Axis>>;

fn page(svg: &mut String, height: u32) -> Result<Page<'_>> {
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE).map_err(broken)?;
    Ok(root)
}

/// The style of a line.
#[derive(Clone, Copy)]
struct Look {
    color: RGBColor,
    dashed: bool,
}

impl Look {
    /// Returns a style. Each kind has its own colours, no matter how many lines the others have.
    fn of<T>(series: &[(String, T)], at: usize) -> Self {
        let kind = Kind::of(&series[at].0);
        let before = series[..at].iter().filter(|(other, _)| Kind::of(other) == kind).count();
        let colors = kind.colors();
        let again = before >= colors.len();
        Self { color: colors[before % colors.len()], dashed: again || kind == Kind::Floor }
    }

    fn line(self, area: &mut Area<'_, '_>, points: &[(f64, f64)]) -> Result<()> {
        let style = self.color.stroke_width(2);
        let points = points.iter().copied();
        match self.dashed {
            true => area.draw_series(DashedLineSeries::new(points, 6, 4, style)).map(drop),
            false => area.draw_series(LineSeries::new(points, style)).map(drop),
        }
        .map_err(broken)
    }

    fn legend(self, page: &Page<'_>, at: usize, name: &str) -> Result<()> {
        let y = LEGEND_TOP + LEGEND_ROW * at as i32;
        let stroke = self.color.stroke_width(3);
        let dashes: &[(i32, i32)] = if self.dashed { &[(0, 9), (13, 22)] } else { &[(0, 22)] };
        for &(from, to) in dashes {
            page.draw(&PathElement::new([(from, y), (to, y)], stroke)).map_err(broken)?;
        }
        let style = TextStyle::from((FONT, TEXT_SIZE)).pos(Pos::new(HPos::Left, VPos::Center));
        page.draw(&Text::new(name.to_owned(), (30, y), style)).map_err(broken)
    }
}

/// The kind of a contender, visible by its colour.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Floor,
    Redbolt,
    Other,
}

impl Kind {
    fn of(name: &str) -> Self {
        match name {
            _ if name.starts_with("raw") => Self::Floor,
            _ if name.starts_with("redbolt") => Self::Redbolt,
            _ => Self::Other,
        }
    }

    fn colors(self) -> &'static [RGBColor] {
        match self {
            Self::Floor => &GREYS,
            Self::Redbolt => &WARM,
            Self::Other => &COLD,
        }
    }
}

fn to_the_left() -> TextStyle<'static> {
    TextStyle::from((FONT, TEXT_SIZE)).pos(Pos::new(HPos::Right, VPos::Center))
}

fn broken<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> anyhow::Error {
    anyhow!("the chart could not be drawn: {error}")
}

const FONT: &str = "sans-serif";
const TITLE_SIZE: u32 = 20;
const TEXT_SIZE: u32 = 14;
const WIDTH: u32 = 960;
const HEIGHT: u32 = 480;
const LEGEND: u32 = 210;
const LEGEND_TOP: i32 = 60;
const LEGEND_ROW: i32 = 20;
const ROW: u32 = 26;
const FRAME: u32 = 120;
const NAMES: u32 = 190;
const GRID: RGBColor = RGBColor(224, 224, 224);
const AXIS: RGBColor = RGBColor(96, 96, 96);
const GREYS: [RGBColor; 4] =
    [RGBColor(30, 30, 30), RGBColor(95, 95, 95), RGBColor(140, 140, 140), RGBColor(185, 185, 185)];
const WARM: [RGBColor; 6] = [
    RGBColor(213, 43, 30),
    RGBColor(245, 130, 32),
    RGBColor(190, 30, 120),
    RGBColor(130, 70, 20),
    RGBColor(225, 175, 20),
    RGBColor(240, 120, 170),
];
const COLD: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(110, 80, 200),
    RGBColor(120, 160, 40),
    RGBColor(0, 80, 80),
    RGBColor(160, 140, 220),
    RGBColor(20, 50, 130),
    RGBColor(60, 200, 190),
];

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["raw epoll", "redbolt <client>", "rslock"];

    fn is_whole(svg: &str) {
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        for name in NAMES {
            assert!(svg.contains(&name.replace('<', "&lt;").replace('>', "&gt;")), "{name}: {svg}");
        }
    }

    fn series(points: &[(f64, f64)]) -> Vec<(String, Vec<(f64, f64)>)> {
        NAMES.map(|name| (name.to_owned(), points.to_vec())).to_vec()
    }

    #[test]
    fn lines_are_named_for_any_points() {
        let fair: &[(f64, f64)] = &[(1.0, 30.0), (3.0, 70.0), (5.0, 120.0)];
        for points in [fair, &[], &[(1.0, f64::NAN)], &[(0.0, 0.0)]] {
            for log in [false, true] {
                let series = series(points);
                is_whole(
                    &lines(&Lines { log_x: log, log_y: log, series, ..Lines::default() }).unwrap(),
                );
            }
        }
    }

    #[test]
    fn percentiles_are_drawn_to_the_last() {
        let series = series(&[(0.0, 10.0), (50.0, 30.0), (99.9, 2_000.0)]);
        let svg = percentiles(&Percentiles { series, ..Percentiles::default() }).unwrap();
        is_whole(&svg);
        assert!(svg.contains("99.9 %"), "{svg}");
    }

    #[test]
    fn bars_are_named_for_any_length() {
        for value in [3.0, 0.0, f64::NAN] {
            for log_x in [false, true] {
                let rows =
                    NAMES.map(|name| (name.to_owned(), value, (value, 2.0 * value))).to_vec();
                is_whole(&bars(&Bars { rows, log_x, ..Bars::default() }).unwrap());
            }
        }
    }
}
