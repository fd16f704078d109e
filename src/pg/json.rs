//! jsonb values to and from their text, without a tree in between: numbers stay exact.

use pgrx::datum::AnyElement;
use pgrx::{FromDatum, IntoDatum, direct_function_call, pg_sys};

use super::throw::unless_refused;

/// A jsonb value as its JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonText(pub(crate) String);

impl FromDatum for JsonText {
    unsafe fn from_polymorphic_datum(datum: pg_sys::Datum, is_null: bool, _: pg_sys::Oid) -> Option<Self> {
        if is_null {
            return None;
        }
        // SAFETY: the caller vouches for a jsonb datum; it is detoasted before it is read.
        unsafe {
            let jsonb = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast::<pg_sys::Jsonb>();
            let len = (pgrx::varsize_any_exhdr(jsonb.cast())) as i32;
            let text =
                pg_sys::JsonbToCString(std::ptr::null_mut(), std::ptr::addr_of_mut!((*jsonb).root), len);
            let owned = std::ffi::CStr::from_ptr(text).to_str().map(str::to_owned);
            pg_sys::pfree(text.cast());
            match owned {
                Ok(owned) => Some(JsonText(owned)),
                // CREATE EXTENSION refuses other encodings. A reading that replaces bytes would change a value in silence.
                Err(_) => pgrx::error!("a jsonb value is not UTF-8"),
            }
        }
    }
}

impl IntoDatum for JsonText {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        let text = std::ffi::CString::new(self.0).ok()?;
        // SAFETY: jsonb_in takes a C string.
        unsafe { direct_function_call::<pg_sys::Datum>(pg_sys::jsonb_in, &[text.as_c_str().into_datum()]) }
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::JSONBOID
    }
}

impl JsonText {
    /// The text of an argument that the SQL surface declares as jsonb. JSON null is as NULL: some drivers cannot say the one
    /// without the other.
    pub(crate) fn from_argument(argument: AnyElement) -> Option<Self> {
        if argument.oid() != pg_sys::JSONBOID {
            pgrx::error!("an argument has type {:?} and not jsonb", argument.oid());
        }
        // SAFETY: not NULL, or it would not be here; the type was compared just now.
        unsafe { JsonText::from_datum(argument.datum(), false) }.filter(|json| json.0 != "null")
    }

    /// As a result column that the SQL surface declares as jsonb.
    pub(crate) fn into_result(self) -> Option<AnyElement> {
        let datum = self.into_datum()?;
        // SAFETY: a jsonb datum made just now, with its type.
        unsafe { AnyElement::from_polymorphic_datum(datum, false, pg_sys::JSONBOID) }
    }
}

/// An argument that the SQL surface declares as text in one form of a function, and as jsonb in another.
pub(crate) enum TextOrJson {
    Text(String),
    Json(JsonText),
}

impl TextOrJson {
    /// As the call was resolved; JSON null is as NULL.
    pub(crate) fn from_argument(argument: AnyElement) -> Option<Self> {
        if argument.oid() != pg_sys::TEXTOID {
            return JsonText::from_argument(argument).map(TextOrJson::Json);
        }
        // SAFETY: not NULL, or it would not be here; the type was compared just now.
        unsafe { String::from_datum(argument.datum(), false) }.map(TextOrJson::Text)
    }
}

/// A jsonb value, in the memory context that was current when it was made.
pub(crate) struct Json(pg_sys::Datum);

impl Json {
    /// What Postgres reads in this text; `None` if that is no JSON, none that it can store, or of more bytes than `most`, as it is stored
    /// or as text.
    pub(crate) fn parse(text: &str, most: usize) -> Option<Json> {
        // Most texts that are no JSON are not worth an error.
        serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
        if text_length_at_most(text) > most { None } else { Json::within(text, most) }
    }

    /// The same of what is JSON, and is the text that Postgres makes of it.
    pub(crate) fn within(text: &str, most: usize) -> Option<Json> {
        let text = std::ffi::CString::new(text).ok()?;
        let json = unless_refused(|| {
            // SAFETY: jsonb_in takes a C string. It reads no tables and takes no locks, so an error caught here (a number
            // out of range, "\u0000", a string that is too long) leaves nothing behind that needs a rollback.
            unsafe {
                direct_function_call::<pg_sys::Datum>(pg_sys::jsonb_in, &[text.as_c_str().into_datum()])
            }
        })?;
        // SAFETY: a jsonb datum made just now, which is not compressed.
        let length = unsafe { pgrx::varsize_any(json.cast_mut_ptr()) };
        (length <= most).then_some(Json(json))
    }

    /// As a result that the SQL surface declares as jsonb.
    pub(crate) fn into_result(self) -> Option<AnyElement> {
        // SAFETY: a jsonb datum made just now, with its type.
        unsafe { AnyElement::from_polymorphic_datum(self.0, false, pg_sys::JSONBOID) }
    }
}

impl IntoDatum for Json {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        Some(self.0)
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::JSONBOID
    }
}

/// How long the text may be, at most, that Postgres makes of JSON: it has a space behind each comma and colon, and writes numbers with
/// all their digits, `1e9` with ten.
fn text_length_at_most(json: &str) -> usize {
    let (mut length, mut in_string, mut bytes) = (json.len(), false, json.bytes().peekable());
    while let Some(byte) = bytes.next() {
        match byte {
            // Behind a backslash: whatever it is.
            b'\\' if in_string => {
                bytes.next();
            }
            b'"' => in_string = !in_string,
            b',' | b':' if !in_string => length += 1,
            b'e' | b'E' if !in_string => {
                // The e of true and false, or that of a number.
                bytes.next_if(|byte| matches!(byte, b'+' | b'-'));
                let mut exponent = 0_usize;
                while let Some(digit) = bytes.next_if(u8::is_ascii_digit) {
                    exponent = exponent.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
                }
                // More is no number to Postgres.
                length += exponent.min(200_000);
            }
            _ => {}
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_text_is_not_underestimated() {
        for (json, length) in [
            ("[1,2]", 6),
            (r#"{"a":true,"b":[]}"#, 20),
            (r#""1e9,:\"""#, 9),
            ("1e9", 12),
            ("[1E+2, -3e-4]", 20),
            ("1e99999999999999999999", 200_022),
        ] {
            assert_eq!(text_length_at_most(json), length, "{json}");
        }
    }
}
