//! A Markdown table whose columns are as wide as their cells, so that it is readable as text.

use std::fmt;

/// A table of rows below headings. The first column is left-aligned, the others right-aligned.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table without rows.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row, with as many cells as there are headings.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn width(&self, column: usize) -> usize {
        let cell = |row: &Vec<String>| row.get(column).map_or(0, |cell| cell.chars().count());
        self.rows.iter().map(cell).max().unwrap_or(0).max(3)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, row) in self.rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                let width = self.width(column);
                match column {
                    0 => write!(f, "| {cell:<width$} |")?,
                    _ => write!(f, " {cell:>width$} |")?,
                }
            }
            writeln!(f)?;
            if at == 0 {
                let rule = |column| if column == 0 { "| --- |" } else { " --: |" };
                (0..row.len()).try_for_each(|column| f.write_str(rule(column)))?;
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let mut table = Table::new(&["who", "p50"]);
        table.row(vec!["somebody".to_owned(), "1".to_owned()]);
        assert_eq!(table.to_string(), "| who      | p50 |\n| --- | --: |\n| somebody |   1 |\n");
    }
}
