//! Positions of records in the arrays of their source: the layout is stored once per source; a record's position
//! follows from its row.
//!
//! ```text
//! {"record_dim":"time","dims":{"time":40,"lat":180,"lon":360},"patches":{"lat":[64,32],"lon":[64,64]},
//!  "variables":{"time":["time"],"t2m":["time","lat","lon"]}}
//! row 20 of it    time[1:2], lat[32:96], lon[64:128] of time and t2m
//! ```

use std::{collections::BTreeMap, ops::Range};

use serde::{Deserialize, Serialize};

use super::{
    Header,
    records::{Plan, patch_starts},
};

/// The layout of a source's records, which locates a record in the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Dimension along which the records are; absent if the source is one record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record_dim: Option<String>,
    /// Lengths of the variables' dimensions.
    dims: BTreeMap<String, u64>,
    /// Size and distance of patches for each dimension that is cut; the first varies slowest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    patches: Vec<(String, u64, u64)>,
    /// Dimensions in which each index is a separate record; the first varies slowest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cells: Vec<String>,
    /// Variables of which records contain a part, with their dimensions.
    variables: Vec<(String, Vec<String>)>,
}

/// A part of several arrays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hyperslab {
    /// First index of each dimension, and the index after the last.
    pub ranges: Vec<(String, Range<u64>)>,
    /// The arrays, with their dimensions.
    pub variables: Vec<(String, Vec<String>)>,
}

impl Hyperslab {
    /// Formats the ranges for messages: `time[17:18], lat[0:64]`.
    pub fn describe(&self) -> String {
        let ranges = self.ranges.iter().map(|(dim, range)| format!("{dim}[{}:{}]", range.start, range.end));
        ranges.collect::<Vec<_>>().join(", ")
    }
}

impl Layout {
    /// Creates the layout of a plan.
    pub fn from_plan(header: &Header, plan: &Plan) -> Self {
        let mut dims = BTreeMap::new();
        let mut variables = Vec::with_capacity(plan.columns.len());
        for column in &plan.columns {
            let variable = &header.variables[column.variable];
            for (dim, length) in column.dims.iter().zip(&variable.shape) {
                dims.insert(dim.clone(), *length);
            }
            variables.push((variable.name.clone(), column.dims.clone()));
        }
        let stride = |starts: &[u64], size| starts.get(1).filter(|_| starts.len() > 2).copied().unwrap_or(size);
        Self {
            record_dim: plan.dim.clone(),
            dims,
            patches: plan.patches.iter().map(|p| (p.dim.clone(), p.size, stride(&p.starts, p.size))).collect(),
            cells: plan.cells.iter().flatten().map(|(dim, _)| dim.clone()).collect(),
            variables,
        }
    }

    /// Returns the part of the source that a row, counted from 1, represents; `None` if there is no such row.
    pub fn row_hyperslab(&self, row: u64) -> Option<Hyperslab> {
        let mut ranges: BTreeMap<&str, Range<u64>> =
            self.dims.iter().map(|(dim, length)| (dim.as_str(), 0..*length)).collect();
        let mut rest = row.checked_sub(1)?;
        for dim in self.cells.iter().rev() {
            let length = *self.dims.get(dim)?;
            let at = rest.checked_rem(length)?;
            rest /= length;
            ranges.insert(dim, at..at + 1);
        }
        for (dim, size, stride) in self.patches.iter().rev() {
            let starts = patch_starts(*self.dims.get(dim)?, *size, *stride)?;
            let number = starts.len() as u64;
            let start = *starts.get(usize::try_from(rest % number).ok()?)?;
            rest /= number;
            ranges.insert(dim, start..start + size);
        }
        match &self.record_dim {
            Some(dim) if rest < *self.dims.get(dim)? => ranges.insert(dim, rest..rest + 1),
            None if rest == 0 => None,
            _ => return None,
        };
        // In the order of the variables' dimensions.
        let mut ordered: Vec<(String, Range<u64>)> = Vec::with_capacity(ranges.len());
        let mut by_rank: Vec<&(String, Vec<String>)> = self.variables.iter().collect();
        by_rank.sort_by_key(|(_, dims)| std::cmp::Reverse(dims.len()));
        for dim in by_rank.into_iter().flat_map(|(_, dims)| dims) {
            if let Some(range) = ranges.remove(dim.as_str()) {
                ordered.push((dim.clone(), range));
            }
        }
        Some(Hyperslab { ranges: ordered, variables: self.variables.clone() })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::array::{DType, Variable, records::ArrayOptions};

    fn header() -> Header {
        let float = |name: &str, dims: &[(&str, u64)]| Variable::with_dims(name, DType::Float(4), dims);
        let variables =
            vec![float("time", &[("time", 3)]), float("t2m", &[("time", 3), ("lat", 5), ("lon", 4)]), float("c", &[])];
        Header { variables, ..Header::default() }
    }

    fn layout(options: &ArrayOptions) -> Layout {
        let header = header();
        Layout::from_plan(&header, &Plan::new(&header, options).unwrap())
    }

    #[test]
    fn rows_map_to_hyperslabs() {
        let option = |dim: &str, size| (dim.to_owned(), size);
        let describe = |options: &ArrayOptions, row| Some(layout(options).row_hyperslab(row)?.describe());
        let slices = ArrayOptions::default();
        assert_eq!(describe(&slices, 2).unwrap(), "time[1:2], lat[0:5], lon[0:4]");
        assert_eq!((describe(&slices, 0), describe(&slices, 4)), (None, None));
        assert_eq!(layout(&slices).row_hyperslab(1).unwrap().variables.len(), 2);
        // Starts 0, 2, 3 of lat, and 0, 2 of lon.
        let patch = vec![option("lat", 2), option("lon", 2)];
        let patches = ArrayOptions { patch, ..ArrayOptions::default() };
        assert_eq!(describe(&patches, 6).unwrap(), "time[0:1], lat[3:5], lon[2:4]");
        assert_eq!(describe(&patches, 9).unwrap(), "time[1:2], lat[2:4], lon[0:2]");
        assert_eq!((describe(&patches, 18).is_some(), describe(&patches, 19)), (true, None));
        let strided = ArrayOptions { stride: vec![option("lat", 1)], ..patches };
        assert_eq!(describe(&strided, 4).unwrap(), "time[0:1], lat[1:3], lon[2:4]");
        let cells = ArrayOptions { flatten: true, ..ArrayOptions::default() };
        assert_eq!(describe(&cells, 20 + 6).unwrap(), "time[1:2], lat[1:2], lon[1:2]");
    }

    #[test]
    fn layouts_round_trip() {
        let options = ArrayOptions { patch: vec![("lat".into(), 2)], ..ArrayOptions::default() };
        let layout = layout(&options);
        let text = serde_json::to_string(&layout).unwrap();
        assert_eq!(
            text,
            r#"{"record_dim":"time","dims":{"lat":5,"lon":4,"time":3},"patches":[["lat",2,2]],"variables":[["time",["time"]],["t2m",["time","lat","lon"]]]}"#
        );
        assert_eq!(serde_json::from_str::<Layout>(&text).unwrap(), layout);
    }
}
