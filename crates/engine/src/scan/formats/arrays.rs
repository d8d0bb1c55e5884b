//! Files and folders of arrays: NetCDF, HDF5, Zarr, NumPy, safetensors. A reader of their records is given what can
//! open them again.

use super::{
    super::{SourceFile, source::RecordSource},
    format::{Class, Format, InputFormat},
    start::{SniffOptions, Start, locate_result, open_ranged},
};
use crate::{
    array::Arrays,
    error::Result,
    format::{
        arrays::ArrayReader,
        hdf5::{self, Hdf5Source},
        netcdf::{self, NetCdfSource},
        npy::{self, NpySource},
        ranged::RangedInput,
        safetensors::{self, SafetensorsSource},
        zarr::ZarrSource,
    },
};

/// What the names of both formats state: netCDF-4 is HDF5.
const NETCDF_OR_HDF5: &str = "NetCDF or HDF5";

pub(super) static NETCDF: Format = Format {
    name: "netcdf",
    help: "NetCDF, classic and version 4",
    states: NETCDF_OR_HDF5,
    endings: &["cdf", "nc", "nc4", "netcdf"],
    class: Class::Arrays,
    open: Some(open_netcdf),
    check_type: None,
};

pub(super) static HDF5: Format = Format {
    name: "hdf5",
    help: "HDF5",
    states: NETCDF_OR_HDF5,
    endings: &["h5", "hdf", "hdf5", "he5"],
    class: Class::Arrays,
    open: Some(open_hdf5),
    check_type: None,
};

pub(super) static ZARR: Format = Format {
    name: "zarr",
    help: "Zarr, versions 2 and 3",
    states: "Zarr",
    endings: &[],
    class: Class::Arrays,
    open: None,
    check_type: None,
};

pub(super) static NPY: Format = Format {
    name: "npy",
    help: "NumPy arrays, .npy and .npz",
    states: "NumPy",
    endings: &["npy", "npz"],
    class: Class::Arrays,
    open: Some(open_npy),
    check_type: None,
};

pub(super) static SAFETENSORS: Format = Format {
    name: "safetensors",
    help: "safetensors of Hugging Face",
    states: "safetensors",
    endings: &["safetensors"],
    class: Class::Arrays,
    open: Some(open_safetensors),
    check_type: None,
};

fn open_netcdf(start: &Start<'_>) -> Result<Option<RecordSource>> {
    if !netcdf::sniff(&start.head.bytes) {
        return open_hdf5(start);
    }
    open_arrays(start, |input| Ok((InputFormat(&NETCDF), Box::new(NetCdfSource::open(input)?) as Box<dyn Arrays>)))
}

fn open_hdf5(start: &Start<'_>) -> Result<Option<RecordSource>> {
    if !hdf5::sniff(&start.head.bytes) {
        return Ok(None);
    }
    let uri = start.file.uri();
    open_arrays(start, move |input| {
        let source = Hdf5Source::open(input, &uri)?;
        Ok((if source.is_netcdf() { InputFormat(&NETCDF) } else { InputFormat(&HDF5) }, Box::new(source)))
    })
}

fn open_npy(start: &Start<'_>) -> Result<Option<RecordSource>> {
    let Some(form) = npy::sniff(&start.head.bytes) else { return Ok(None) };
    open_arrays(start, move |input| Ok((InputFormat(&NPY), Box::new(NpySource::open(input, form)?) as Box<dyn Arrays>)))
}

fn open_safetensors(start: &Start<'_>) -> Result<Option<RecordSource>> {
    let format = InputFormat(&SAFETENSORS);
    if !safetensors::sniff(&start.head.bytes, start.states_format(format)) {
        return Ok(None);
    }
    let raw = start.options.arrays.raw;
    open_arrays(start, move |input| Ok((format, Box::new(SafetensorsSource::open(input, raw)?) as Box<dyn Arrays>)))
}

/// Returns a file of arrays.
fn open_arrays(
    start: &Start<'_>,
    open: impl Fn(RangedInput) -> Result<(InputFormat, Box<dyn Arrays>)> + Send + Sync + 'static,
) -> Result<Option<RecordSource>> {
    let (file, packed, options) = (start.file, start.head.packed, start.options);
    let again = {
        let file = file.clone();
        move || locate_result(open(open_ranged(&file, packed)?), &file)
    };
    let (format, arrays) = again()?;
    let again = Box::new(move || Ok(again()?.1));
    let reader = ArrayReader::new(arrays, again, &options.arrays, &file.uri(), file.bytes(), &options.open)?;
    Ok(Some(of_arrays(file, format, packed, reader)))
}

/// Returns a folder that is one source; `None` when the user named another format.
pub(in crate::scan) fn zarr_source(file: &SourceFile, options: &SniffOptions) -> Result<Option<RecordSource>> {
    if options.from.is_some_and(|from| from != InputFormat(&ZARR)) {
        return Ok(None);
    }
    let again = {
        let file = file.clone();
        move || {
            Ok(Box::new(locate_result(ZarrSource::open(file.folder(), file.store_metadata()), &file)?)
                as Box<dyn Arrays>)
        }
    };
    let arrays = again()?;
    let reader = ArrayReader::new(arrays, Box::new(again), &options.arrays, &file.uri(), file.bytes(), &options.open)?;
    Ok(Some(of_arrays(file, InputFormat(&ZARR), false, reader)))
}

fn of_arrays(file: &SourceFile, format: InputFormat, packed: bool, reader: ArrayReader) -> RecordSource {
    let sample = Some(reader.first_range());
    RecordSource { packed, sample, ..RecordSource::new(file, format, std::sync::Arc::new(reader)) }
}
