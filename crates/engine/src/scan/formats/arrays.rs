//! Files and folders of arrays: NetCDF, HDF5, Zarr, NumPy, safetensors, NIfTI. A reader of their records is given what
//! can open them again.

use std::{
    io::Read,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

use super::{
    super::{SourceFile, source::RecordSource},
    format::{Class, Format, InputFormat},
    start::{SniffOptions, Start, locate_result, open_ranged},
};
use crate::{
    array::Arrays,
    error::Result,
    format::{
        arrays::{ArrayReader, OpenSources},
        hdf5::{self, Hdf5Source},
        netcdf::{self, NetCdfSource},
        nifti::{self, NiftiSource, PackedImage, UnpackedImage},
        npy::{self, NpySource},
        ranged::RangedInput,
        safetensors::{self, SafetensorsSource},
        zarr::ZarrSource,
    },
    storage::Spill,
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

pub(super) static NIFTI: Format = Format {
    name: "nifti",
    help: "NIfTI images, .nii and .nii.gz",
    states: "NIfTI",
    endings: &["nii"],
    class: Class::Arrays,
    open: Some(open_nifti),
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

fn open_nifti(start: &Start<'_>) -> Result<Option<RecordSource>> {
    let format = InputFormat(&NIFTI);
    if !nifti::sniff(&start.head.bytes, start.states_format(format)) {
        return Ok(None);
    }
    if !start.head.packed {
        return open_arrays(start, move |input| Ok((format, Box::new(NiftiSource::open(input)?) as Box<dyn Arrays>)));
    }
    let (file, open) = (start.file.clone(), Arc::clone(&start.options.open));
    // The head is not kept for when the file is opened again: there may be tens of thousands.
    let first = Mutex::new(Some(start.head.bytes.clone()));
    read_arrays(start, move || {
        let head = match first.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(head) => head.into(),
            None => Bytes::from(file.read_head(nifti::HEAD)?.bytes),
        };
        let (packed, open) = (file.clone(), Arc::clone(&open));
        let unpack = Box::new(move |end| locate_result(unpack_image(&packed, &open, end), &packed));
        let source = locate_result(NiftiSource::open_packed(PackedImage { head, unpack }), &file)?;
        Ok((format, Box::new(source) as Box<dyn Arrays>))
    })
}

/// Bytes of a file that are decompressed together.
const PIECE: usize = 1 << 20;

/// Decompresses a file up to the end of its image, to memory or to disk, and checks that only padding follows.
fn unpack_image(file: &SourceFile, open: &Arc<OpenSources>, end: u64) -> Result<UnpackedImage> {
    let mut bytes = file.open(|_| {})?;
    let mut image = bytes.by_ref().take(end);
    let unpacked = if let Some(kept) = open.reserve_unpacked(end) {
        let mut content = Vec::new();
        image.read_to_end(&mut content)?;
        UnpackedImage { input: RangedInput::Bytes(content.into()), kept: Some(Arc::new(kept)) }
    } else {
        let spill = Spill::new()?;
        let count = read_pieces(&mut image, |piece, _| spill.append(piece).map(drop))?;
        UnpackedImage { input: RangedInput::Disk(Arc::new(spill), count), kept: None }
    };
    // Reading to the end also compares the checksum.
    read_pieces(&mut bytes, |piece, before| nifti::check_padding(end, before, piece))?;
    Ok(unpacked)
}

/// Passes on all bytes, piece by piece, with the number of those before; returns how many there are.
fn read_pieces(input: &mut impl Read, mut pass_on: impl FnMut(&[u8], u64) -> Result<()>) -> Result<u64> {
    let (mut piece, mut count) = (Vec::with_capacity(PIECE), 0);
    loop {
        piece.clear();
        let read = input.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
        if read == 0 {
            return Ok(count);
        }
        pass_on(&piece, count)?;
        count += read as u64;
    }
}

/// Returns a file of arrays.
fn open_arrays(
    start: &Start<'_>,
    open: impl Fn(RangedInput) -> Result<(InputFormat, Box<dyn Arrays>)> + Send + Sync + 'static,
) -> Result<Option<RecordSource>> {
    let (file, packed) = (start.file.clone(), start.head.packed);
    read_arrays(start, move || locate_result(open(open_ranged(&file, packed)?), &file))
}

/// Returns a file of arrays, given what opens it.
fn read_arrays(
    start: &Start<'_>,
    again: impl Fn() -> Result<(InputFormat, Box<dyn Arrays>)> + Send + Sync + 'static,
) -> Result<Option<RecordSource>> {
    let (file, packed, options) = (start.file, start.head.packed, start.options);
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
