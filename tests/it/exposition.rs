//! A strict parser of the text exposition format, version 0.0.4: it accepts what Prometheus
//! specifies, and nothing that Prometheus merely tolerates. No crate for it is strict, maintained,
//! and under a suitable licence.

use std::collections::{BTreeMap, BTreeSet};

/// The families of a text, by name.
pub(crate) type Scrape = BTreeMap<String, Family>;

#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Family {
    /// Returns the value of the sample with these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted = labels.iter().map(|&(label, of)| (label.to_owned(), of.to_owned())).collect();
        let is_it = |sample: &&Sample| sample.name == name && sample.labels == wanted;
        self.samples.iter().find(is_it).map(|sample| sample.value)
    }
}

/// Parses a whole text, or returns what is wrong with it.
pub(crate) fn read(text: &str) -> Result<Scrape, String> {
    let mut scrape = Scrape::new();
    let mut present: Option<(String, Family)> = None;
    let mut helped = None;
    let body = text.strip_suffix('\n').ok_or("the last line has no end")?;
    for line in body.split('\n') {
        let fault = |what: &str| format!("{what}: {line:?}");
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').ok_or_else(|| fault("no help"))?;
            if !is_name(name, true) || words.is_empty() || !has_known_escapes(words, "\\n") {
                return Err(fault("a bad help"));
            }
            finish(&mut scrape, present.take())?;
            helped = Some(name);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').ok_or_else(|| fault("no type"))?;
            if helped.take() != Some(name) || !["counter", "gauge", "histogram"].contains(&kind) {
                return Err(fault("a bad type, or not right behind its help"));
            }
            if kind == "counter" && !name.ends_with("_total") {
                return Err(fault("a counter's name ends in _total"));
            }
            let family = Family { kind: kind.to_owned(), samples: Vec::new() };
            present = Some((name.to_owned(), family));
        } else {
            let (name, family) = present.as_mut().ok_or_else(|| fault("of no family"))?;
            family.samples.push(sample(line, name, &family.kind).map_err(|what| fault(&what))?);
        }
    }
    finish(&mut scrape, present)?;
    Ok(scrape)
}

fn finish(scrape: &mut Scrape, family: Option<(String, Family)>) -> Result<(), String> {
    let Some((name, family)) = family else { return Ok(()) };
    let mut seen = BTreeSet::new();
    let mut labels = BTreeSet::new();
    for sample in &family.samples {
        if !seen.insert((&sample.name, &sample.labels)) {
            return Err(format!("twice: {sample:?}"));
        }
        labels.insert((&sample.name, sample.labels.keys().collect::<Vec<_>>()));
    }
    let names: BTreeSet<_> = labels.iter().map(|(name, _)| name).collect();
    if names.len() != labels.len() {
        return Err(format!("samples of {name} differ in their labels"));
    }
    if family.kind == "histogram" {
        histogram(&name, &family)?;
    }
    match scrape.insert(name.clone(), family) {
        Some(_) => Err(format!("two families {name}")),
        None => Ok(()),
    }
}

/// Checks that buckets grow with their bounds and end with +Inf, and that sum and count exist.
fn histogram(name: &str, family: &Family) -> Result<(), String> {
    let part = |end: &str| {
        let part = format!("{name}{end}");
        family.samples.iter().filter(move |sample| sample.name == part)
    };
    let mut series: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    for bucket in part("_bucket") {
        let mut labels = bucket.labels.clone();
        let bound = labels.remove("le").ok_or("a bucket without a bound")?;
        series.entry(labels).or_default().push((number(&bound)?, bucket.value));
    }
    let whole = |end| part(end).map(|sample| &sample.labels).collect::<BTreeSet<_>>();
    if whole("_count") != series.keys().collect() || whole("_sum") != whole("_count") {
        return Err(format!("{name}: sums, counts and buckets do not match"));
    }
    for (labels, buckets) in series {
        let rises = buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
        let count = part("_count").find(|sample| sample.labels == labels);
        let all = count.map(|count| (f64::INFINITY, count.value));
        if !rises || buckets.last().copied() != all {
            return Err(format!("{name} {labels:?}: no histogram: {buckets:?}"));
        }
    }
    Ok(())
}

fn sample(line: &str, family: &str, kind: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, rest) = line.split_at(end);
    let outcome = name.strip_prefix(family).ok_or("of another family")?;
    let fits = match kind {
        "histogram" => ["_bucket", "_sum", "_count"].contains(&outcome),
        _ => outcome.is_empty(),
    };
    if !fits || !is_name(name, true) {
        return Err("a bad name".to_owned());
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let text = rest.strip_prefix(' ').ok_or("no space before the value")?;
    let value = number(text)?;
    let counts = kind == "counter" || outcome == "_bucket" || outcome == "_count";
    if counts && !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("no count".to_owned());
    }
    Ok(Sample { name: name.to_owned(), labels, value })
}

/// Parses labels up to the brace, and returns the rest of the line.
fn labels(mut rest: &str) -> Result<(BTreeMap<String, String>, &str), String> {
    let mut labels = BTreeMap::new();
    loop {
        let (label, behind) = rest.split_once("=\"").ok_or("no label")?;
        let (mut of, mut letters) = (String::new(), behind.char_indices());
        let end = loop {
            match letters.next().ok_or("a label without an end")? {
                (at, '"') => break at + 1,
                (_, '\\') => of.push(match letters.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, letter @ ('\\' | '"'))) => letter,
                    _ => return Err("not a valid escape".to_owned()),
                }),
                (_, letter) => of.push(letter),
            }
        };
        if !is_name(label, false) || labels.insert(label.to_owned(), of).is_some() {
            return Err("a bad label".to_owned());
        }
        match behind[end..].split_at_checked(1) {
            Some((",", behind)) => rest = behind,
            Some(("}", behind)) => return Ok((labels, behind)),
            _ => return Err("neither comma nor brace".to_owned()),
        }
    }
}

fn number(text: &str) -> Result<f64, String> {
    match text {
        "+Inf" => Ok(f64::INFINITY),
        // `parse` accepts these forms beyond digits, a point and an exponent.
        _ if text.contains(|c: char| c.is_ascii_alphabetic() && c != 'e') => {
            Err("no number".into())
        }
        _ => text.parse().map_err(|_| "no number".to_owned()),
    }
}

fn is_name(text: &str, colons: bool) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || colons && c == ':';
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(fits)
}

fn has_known_escapes(text: &str, known: &str) -> bool {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' && !letters.next().is_some_and(|letter| known.contains(letter)) {
            return false;
        }
    }
    true
}

#[test]
fn texts_that_prometheus_accepts() {
    let text = "# HELP a_total Of a\\nb.\n# TYPE a_total counter\na_total{x=\"q\\\"\\\\\\n\",y=\"\"} 3\n\
        # HELP h Of h.\n# TYPE h histogram\nh_bucket{le=\"0.5\"} 1\nh_bucket{le=\"+Inf\"} 2\n\
        h_sum 1.5\nh_count 2\n# HELP g Of g.\n# TYPE g gauge\ng -1.5e3\n";
    let scrape = read(text).unwrap();
    assert_eq!(scrape["a_total"].value("a_total", &[("x", "q\"\\\n"), ("y", "")]), Some(3.0));
    assert_eq!(scrape["h"].value("h_bucket", &[("le", "0.5")]), Some(1.0));
    assert_eq!(scrape["g"].value("g", &[]), Some(-1500.0));
}

#[test]
fn texts_that_prometheus_refuses() {
    let head = "# HELP a_total A.\n# TYPE a_total counter\n";
    for line in [
        "a_total 1",
        "a_total 1\n\n",
        "a_total  1\n",
        "a_total 1 \n",
        "a_total one\n",
        "a_total -1\n",
        "a_total 1.5\n",
        "b_total 1\n",
        "a_total{} 1\n",
        "a_total{x=\"1\",} 1\n",
        "a_total{x=\"1\"y=\"2\"} 1\n",
        "a_total{x=\"\"\"} 1\n",
        "a_total{x=\"\\t\"} 1\n",
        "a_total{x=\"1\n\"} 1\n",
        "a_total{x=\"1\",x=\"2\"} 1\n",
        "a_total{1x=\"1\"} 1\n",
        "a_total{x=1} 1\n",
        "a_total 1\na_total 1\n",
        "a_total 1\na_total{x=\"1\"} 1\n",
        "a_total 1\n# HELP a_total A.\n# TYPE a_total counter\na_total 2\n",
        "a_total 1\n# TYPE b gauge\nb 1\n",
        "a_total 1\n# HELP b B.\nb 1\n",
        "a_total 1\n# HELP b B.\n# TYPE b counter\nb 1\n",
    ] {
        assert!(read(&format!("{head}{line}")).is_err(), "{line:?}");
    }
    let head = "# HELP h H.\n# TYPE h histogram\n";
    for lines in [
        "h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
        "h_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 2\n",
        "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 2\n",
        "h_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 3\n",
        "h_bucket{le=\"+Inf\"} 2\nh_count 2\n",
        "h_bucket 2\nh_sum 1\nh_count 2\n",
        "h 2\n",
    ] {
        assert!(read(&format!("{head}{lines}")).is_err(), "{lines:?}");
    }
}
