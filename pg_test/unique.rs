//! The forms of the key `unique_by`.

#[pgrx::pg_schema]
mod tests {
    use crate::input::{OnHeld, States, Unique, parse_unique};
    use pgrx::prelude::*;

    fn read(json: &str) -> Result<Option<Unique>, String> {
        parse_unique(json, Some("{\"a\": 1}")).map_err(|problem| problem.what)
    }

    #[pg_test]
    fn the_short_forms_of_unique_are_read() {
        assert!(read("false").unwrap().is_none());
        assert_eq!(read("true").unwrap().unwrap().key, "body:{\"a\": 1}");
        let unique = read("\"k\"").unwrap().unwrap();
        assert_eq!((unique.key.as_str(), unique.on_conflict), ("k", OnHeld::Skip));
        assert_eq!(unique.states, States(1 + 2 + 4 + 8), "until it is settled");
    }

    #[pg_test]
    fn a_long_body_gives_its_digest_as_unique_key() {
        let key = |body: &str| parse_unique("true", Some(body)).unwrap().unwrap().key;
        let digest: String =
            Spi::get_one("SELECT encode(sha256(convert_to(repeat('x', 201), 'UTF8')), 'hex')")
                .unwrap()
                .unwrap();
        assert_eq!(key(&"x".repeat(201)), format!("body:sha256:{digest}"));
        assert_eq!(key(&"x".repeat(200)), format!("body:{}", "x".repeat(200)));
    }

    #[pg_test]
    fn the_object_form_of_unique_is_read() {
        let unique =
            read(r#"{"states": ["pending", "completed"], "on_conflict": "replace"}"#).unwrap().unwrap();
        assert_eq!(unique.states, States(1 + 2 + 4 + 16));
        assert_eq!(unique.on_conflict, OnHeld::Replace);
    }

    #[pg_test]
    fn what_cannot_be_read_of_unique_is_named() {
        for (json, word) in [
            ("1", "a number, not true, a key, or an object"),
            ("[]", "not true, a key, or an object"),
            ("\"\"", "empty"),
            (r#"{"key": ""}"#, "empty"),
            (r#"{"kee": "k"}"#, "kee"),
            (r#"{"states": []}"#, "empty"),
            (r#"{"states": ["done"]}"#, "done"),
            (r#"{"on_conflict": "ignore"}"#, "ignore"),
        ] {
            let problem = read(json).expect_err(json);
            assert!(problem.contains(word), "{json}: {problem}");
        }
    }
}
