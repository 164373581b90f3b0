//! Types of a BPF object, as Rust.
//!
//! Source: kernel documentation, bpf/btf.rst; System V ABI, ELF-64 object files.

use std::fmt::{self, Write};

/// Kinds of types in BTF.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// Bytes of the fields that every type has: name, information, and size or type.
const COMMON_BYTES: usize = 12;
/// Typedefs and qualifiers around a type, at most: a chain of a broken file might not end.
const WRAPS_MAX: usize = 32;

/// Reason why types cannot be read, or written as Rust.
#[derive(Debug, PartialEq)]
pub(crate) struct BtfError(String);

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for BtfError {
    fn from(why: &str) -> Self {
        BtfError(why.to_owned())
    }
}

/// The types of one object.
pub(crate) struct Btf<'a> {
    types: &'a [u8],
    /// Where each type begins; type number 1 is the first.
    starts: Vec<usize>,
    strings: &'a [u8],
}

impl<'a> Btf<'a> {
    /// Reads the types of an ELF-64 object with this machine's byte order.
    ///
    /// Errors: it has none, or is cut off.
    pub(crate) fn read(object: &'a [u8]) -> Result<Self, BtfError> {
        Btf::parse(section(object, b".BTF")?)
    }

    fn parse(section: &'a [u8]) -> Result<Self, BtfError> {
        if u16_at(section, 0)? != 0xeb9f {
            return Err("its BTF has another byte order or none".into());
        }
        let (types, strings) = (part(section, 8)?, part(section, 16)?);
        let mut starts = Vec::new();
        let mut at = 0;
        while at < types.len() {
            starts.push(at);
            at += COMMON_BYTES + detail_bytes(u32_at(types, at + 4)?);
        }
        Ok(Btf { types, starts, strings })
    }

    /// Definition of a struct with fields of this crate; `None` if the object has no such struct. Padding has fields of its
    /// own, so that all bytes of a value are its own.
    ///
    /// Errors: a field cannot be one of Rust.
    pub(crate) fn definition(&self, name: &str) -> Result<Option<String>, BtfError> {
        let mut numbers = 1..=self.starts.len() as u32;
        let found = numbers.find_map(|number| {
            let found = self.type_at(number).ok()?;
            (found.kind() == kind::STRUCT && self.name(found.name).ok()? == name).then_some(found)
        });
        let Some(found) = found else { return Ok(None) };
        let mut text = format!("pub(crate) struct {name} {{\n");
        let mut end_bytes = 0;
        for number in 0..found.count() {
            let at = found.details + number * 12;
            let (field, of) = (self.name(u32_at(self.types, at)?)?, u32_at(self.types, at + 4)?);
            let (offset_bits, (rust, bytes)) = (u32_at(self.types, at + 8)?, self.rust_type(of)?);
            if offset_bits % 8 != 0 {
                return Err(BtfError(format!("{field} of struct {name} is a bit field")));
            }
            text += &padding(end_bytes, offset_bits as usize / 8)?;
            end_bytes = offset_bits as usize / 8 + bytes;
            let _ = writeln!(text, "    pub(crate) {field}: {rust},");
        }
        text += &padding(end_bytes, found.size_or_type as usize)?;
        Ok(Some(text + "}"))
    }

    /// A type's name in Rust, and its size in bytes.
    fn rust_type(&self, number: u32) -> Result<(String, usize), BtfError> {
        let mut number = number;
        for _ in 0..WRAPS_MAX {
            let found = self.type_at(number)?;
            let bytes = found.size_or_type as usize;
            match found.kind() {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    number = found.size_or_type;
                }
                kind::INT => {
                    let is_signed = u32_at(self.types, found.details)? >> 24 & 1 == 1;
                    let sign = if is_signed { 'i' } else { 'u' };
                    return Ok((format!("{sign}{}", bytes * 8), bytes));
                }
                kind::STRUCT => return Ok((self.name(found.name)?.to_owned(), bytes)),
                kind::ARRAY => {
                    let count = u32_at(self.types, found.details + 8)? as usize;
                    let (rust, bytes) = self.rust_type(u32_at(self.types, found.details)?)?;
                    let bytes = bytes.checked_mul(count).ok_or("an array is too long")?;
                    return Ok((format!("[{rust}; {count}]"), bytes));
                }
                other => {
                    return Err(BtfError(format!(
                        "a field of BTF kind {other} has no type in Rust"
                    )));
                }
            }
        }
        Err("its BTF names types in a circle".into())
    }

    fn type_at(&self, number: u32) -> Result<Type, BtfError> {
        let at = number.checked_sub(1).and_then(|index| self.starts.get(index as usize));
        let at = *at.ok_or_else(|| BtfError(format!("its BTF has no type {number}")))?;
        Ok(Type {
            name: u32_at(self.types, at)?,
            information: u32_at(self.types, at + 4)?,
            size_or_type: u32_at(self.types, at + 8)?,
            details: at + COMMON_BYTES,
        })
    }

    fn name(&self, offset: u32) -> Result<&'a str, BtfError> {
        text_at(self.strings, offset as usize)
    }
}

struct Type {
    /// Offset of its name.
    name: u32,
    information: u32,
    size_or_type: u32,
    /// Where what follows the common fields begins.
    details: usize,
}

impl Type {
    fn kind(&self) -> u32 {
        type_kind(self.information)
    }

    /// Number of fields.
    fn count(&self) -> usize {
        detail_count(self.information)
    }
}

fn type_kind(information: u32) -> u32 {
    information >> 24 & 0x1f
}

fn detail_count(information: u32) -> usize {
    (information & 0xffff) as usize
}

/// Bytes that follow the common fields of a type.
fn detail_bytes(information: u32) -> usize {
    let count = detail_count(information);
    match type_kind(information) {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => count * 12,
        kind::ENUM | kind::FUNC_PROTO => count * 8,
        _ => 0,
    }
}

/// A field for the bytes between two fields, if there are any.
fn padding(from: usize, until: usize) -> Result<String, BtfError> {
    match until.checked_sub(from) {
        None => Err("fields of a struct overlap".into()),
        Some(0) => Ok(String::new()),
        Some(bytes) => Ok(format!("    pub(crate) __pad_{from}: [u8; {bytes}],\n")),
    }
}

/// A part of BTF, whose offset behind the header and length are at `at`.
fn part(btf: &[u8], at: usize) -> Result<&[u8], BtfError> {
    let start = u32_at(btf, 4)? as usize + u32_at(btf, at)? as usize;
    bytes_at(btf, start, u32_at(btf, at + 4)? as usize)
}

/// Contents of the section with this name.
fn section<'a>(object: &'a [u8], name: &[u8]) -> Result<&'a [u8], BtfError> {
    if object.get(..5) != Some(b"\x7fELF\x02") {
        return Err("it is not an ELF-64 object".into());
    }
    let (count, names) = (u16_at(object, 0x3c)?, u16_at(object, 0x3e)?);
    let names = contents(object, section_header(object, names)?)?;
    for number in 0..count {
        let header = section_header(object, number)?;
        if text_at(names, u32_at(object, header)? as usize)?.as_bytes() == name {
            return contents(object, header);
        }
    }
    Err(BtfError(format!("it has no section {}", String::from_utf8_lossy(name))))
}

/// Where the header of a section is.
fn section_header(object: &[u8], number: u16) -> Result<usize, BtfError> {
    let (table, bytes) = (u64_at(object, 0x28)?, u16_at(object, 0x3a)?);
    Ok(table.checked_add(usize::from(number) * usize::from(bytes)).ok_or(CUT_OFF)?)
}

/// Contents of the section with this header.
fn contents(object: &[u8], header: usize) -> Result<&[u8], BtfError> {
    bytes_at(object, u64_at(object, header + 0x18)?, u64_at(object, header + 0x20)?)
}

fn text_at(strings: &[u8], offset: usize) -> Result<&str, BtfError> {
    let rest = strings.get(offset..).ok_or(CUT_OFF)?;
    let end = rest.iter().position(|byte| *byte == 0).ok_or(CUT_OFF)?;
    std::str::from_utf8(&rest[..end]).map_err(|_| "a name is not text".into())
}

const CUT_OFF: &str = "it is cut off";

fn bytes_at(bytes: &[u8], at: usize, len: usize) -> Result<&[u8], BtfError> {
    let end = at.checked_add(len).ok_or(CUT_OFF)?;
    Ok(bytes.get(at..end).ok_or(CUT_OFF)?)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], BtfError> {
    bytes_at(bytes, at, N)?.try_into().map_err(|_| CUT_OFF.into())
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, BtfError> {
    array_at(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    array_at(bytes, at).map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<usize, BtfError> {
    usize::try_from(array_at(bytes, at).map(u64::from_ne_bytes)?).map_err(|_| CUT_OFF.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF with these types and strings.
    fn btf(types: &[u32], strings: &str) -> Vec<u8> {
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let lens = [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        bytes.extend(lens.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(types);
        bytes.extend(strings.as_bytes());
        bytes
    }

    const STRINGS: &str = "\0config\0port\0lengths\0";
    const PORT: u32 = 8;
    const LENGTHS: u32 = 13;

    fn int(bits: u32, is_signed: u32) -> [u32; 4] {
        [0, kind::INT << 24, bits / 8, is_signed << 24 | bits]
    }

    fn array(element: u32, count: u32) -> [u32; 6] {
        [0, kind::ARRAY << 24, 0, element, 1, count]
    }

    /// `struct config { const unsigned int port; signed short lengths[2][3]; }` of a size.
    fn config(bytes: u32, lengths_at_bits: u32) -> Vec<u32> {
        let mut types = int(32, 0).to_vec();
        types.extend([0, kind::CONST << 24, 1]);
        types.extend(int(16, 1));
        types.extend(array(3, 3));
        types.extend(array(4, 2));
        types.extend([1, kind::STRUCT << 24 | 2, bytes, PORT, 2, 0, LENGTHS, 5, lengths_at_bits]);
        types
    }

    #[test]
    fn a_struct_has_its_fields_in_order() {
        let bytes = btf(&config(16, 32), STRINGS);
        let btf = Btf::parse(&bytes).unwrap();
        let text = btf.definition("config").unwrap().unwrap();
        assert_eq!(
            text,
            "pub(crate) struct config {\n    pub(crate) port: u32,\n    pub(crate) lengths: [[i16; 3]; 2],\n}"
        );
        assert_eq!(btf.definition("absent").unwrap(), None);
    }

    #[test]
    fn padding_has_a_field_of_its_own() {
        for (bytes, at, field) in
            [(20, 32, "__pad_16: [u8; 4],\n}"), (20, 64, "__pad_4: [u8; 4],\n")]
        {
            let bytes = btf(&config(bytes, at), STRINGS);
            let text = Btf::parse(&bytes).unwrap().definition("config").unwrap().unwrap();
            assert!(text.contains(field), "{text}");
        }
        for (at, wrong) in [(33, "lengths of struct config is a bit field"), (16, "overlap")] {
            let bytes = btf(&config(16, at), STRINGS);
            let error = Btf::parse(&bytes).unwrap().definition("config").unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn a_broken_file_is_an_error_wherever_it_is_cut_and_no_panic() {
        let bytes = btf(&config(16, 32), STRINGS);
        for len in 0..bytes.len() {
            let whole = Btf::parse(&bytes[..len]).and_then(|btf| btf.definition("config"));
            assert!(whole.is_err(), "{len} bytes");
        }
        let circle =
            btf(&[0, kind::CONST << 24, 1, 1, kind::STRUCT << 24 | 1, 4, PORT, 1, 0], STRINGS);
        let error = Btf::parse(&circle).unwrap().definition("config").unwrap_err().to_string();
        assert!(error.contains("circle"), "{error}");
        assert!(Btf::read(b"text").is_err());
    }
}
