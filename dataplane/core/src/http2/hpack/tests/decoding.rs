//! Errors, and the edges of the dynamic table.

use super::*;

#[test]
fn a_malformed_block_is_an_error() {
    for (block, error) in [
        ("80", HpackError::NoSuchEntry(0)),
        ("be", HpackError::NoSuchEntry(62)),
        ("82 ff00", HpackError::NoSuchEntry(127)),
        ("ffff ffff 7f", HpackError::NoSuchEntry((1 << 28) + 126)),
        ("7e 0161", HpackError::NoSuchEntry(62)),
        ("0f2f 0161", HpackError::NoSuchEntry(62)),
        ("1f2f 0161", HpackError::NoSuchEntry(62)),
        // Integers.
        ("ff80 8080 8000", HpackError::LongInteger),
        ("ffff ffff ff", HpackError::LongInteger),
        ("ffff ffff ffff ffff ffff ff7f", HpackError::LongInteger),
        ("0f80 8080 8001", HpackError::LongInteger),
        ("007f ffff ffff 0f", HpackError::LongInteger),
        ("ff", HpackError::Truncated),
        ("ff80", HpackError::Truncated),
        ("7f", HpackError::Truncated),
        ("3f", HpackError::Truncated),
        ("1fff", HpackError::Truncated),
        // Strings.
        ("40", HpackError::Truncated),
        ("00", HpackError::Truncated),
        ("10", HpackError::Truncated),
        ("4001", HpackError::Truncated),
        ("4001 61", HpackError::Truncated),
        ("4001 6101", HpackError::Truncated),
        ("4001 617f", HpackError::Truncated),
        ("4001 617f ffff ff7f", HpackError::Truncated),
        ("4003 6161", HpackError::Truncated),
        ("4081", HpackError::Truncated),
        ("41", HpackError::Truncated),
        ("4182 1f", HpackError::Truncated),
        // The size of the dynamic table.
        ("3fe2 1f", HpackError::LargeTable(4097)),
        ("203f e21f", HpackError::LargeTable(4097)),
        ("3fff ffff 7f", HpackError::LargeTable((1 << 28) + 30)),
        ("2020 20", HpackError::MisplacedTableSize),
        ("2020 203f e21f", HpackError::MisplacedTableSize),
        ("8220", HpackError::MisplacedTableSize),
        ("0001 6101 6220", HpackError::MisplacedTableSize),
        ("2082 20", HpackError::MisplacedTableSize),
        // `a` with seven bits of padding and another byte of it.
        ("4182 1fff", HpackError::Padding),
        // Eight bits of padding.
        ("4181 ff", HpackError::Padding),
        // Padding of zeros, and of one zero behind ones.
        ("4181 18", HpackError::Padding),
        ("4181 1e", HpackError::Padding),
        // A beginning of a long code, which is not padding.
        ("4181 fe", HpackError::Padding),
        ("4182 fffe", HpackError::Padding),
        ("4183 ffff ff", HpackError::Padding),
        // The symbol for the end, alone and behind `a`.
        ("4184 ffff ffff", HpackError::EndSymbol),
        ("4185 1fff ffff ff", HpackError::EndSymbol),
        ("4085 1fff ffff ff01 61", HpackError::EndSymbol),
        ("4188 ffff ffff ffff ffff", HpackError::EndSymbol),
    ] {
        let mut decoder = Decoder::new();
        assert_eq!(
            decoded(&mut decoder, &bytes(block)),
            Err(error),
            "{block}: {error}"
        );
        assert!(entries(&mut decoder).is_empty(), "{block}");
    }
}

#[test]
fn unusual_blocks_are_valid() {
    for (block, expected) in [
        ("", &[][..]),
        // Sizes of the dynamic table, alone and before a field.
        ("20", &[]),
        ("203f e11f", &[]),
        ("203f e11f 82", &[(":method", "GET")]),
        // Integers in a longer form than needed.
        ("0f00 0161", &[("accept-charset", "a")]),
        ("0f80 8080 0001 61", &[("accept-charset", "a")]),
        // Strings without bytes, in both codings.
        ("0000 00", &[("", "")]),
        ("0080 80", &[("", "")]),
        ("4080 80", &[("", "")]),
        // Padding of no bit, and of seven bits.
        ("0185 0000 0000 00", &[(":authority", "00000000")]),
        ("0183 b9fc 7f", &[(":authority", ":!")]),
    ] {
        let result = decoded(&mut Decoder::new(), &bytes(block));
        assert_eq!(result, Ok(fields(expected)), "{block}");
    }
}

#[test]
fn fields_before_an_error_are_handed_out() {
    let mut names = Vec::new();
    let mut decoder = Decoder::new();
    let result = decoder.decode(&bytes("8287 80 82"), |name, _| {
        names.push(name.to_vec());
        Ok(())
    });
    assert_eq!(result, Err(HpackError::NoSuchEntry(0)));
    assert_eq!(names, [b":method".to_vec(), b":scheme".to_vec()]);
}

#[test]
fn old_entries_are_removed_until_a_new_one_fits() {
    let mut decoder = Decoder::new();
    // 4 * 1024 bytes are exactly the limit.
    for name in ["a", "b", "c", "d"] {
        add(&mut decoder, name, &"v".repeat(1024 - 32 - 1));
    }
    assert_eq!(names(&mut decoder), ["d", "c", "b", "a"]);
    add(&mut decoder, "e", "");
    assert_eq!(names(&mut decoder), ["e", "d", "c", "b"]);
    add(&mut decoder, "f", &"v".repeat(2048));
    assert_eq!(names(&mut decoder), ["f", "e", "d"]);
    add(&mut decoder, "g", &"v".repeat(4096 - 32 - 1));
    assert_eq!(names(&mut decoder), ["g"]);
}

#[test]
fn an_entry_that_is_larger_than_the_table_removes_all_others() {
    for length in [4096 - 32, 5000, 70_000] {
        let mut decoder = Decoder::new();
        add(&mut decoder, "a", "1");
        let value = "v".repeat(length);
        add(&mut decoder, "b", &value);
        assert!(entries(&mut decoder).is_empty(), "{length}");
        add(&mut decoder, "c", "3");
        assert_eq!(entries(&mut decoder), fields(&[("c", "3")]));
    }
}

#[test]
fn a_field_may_take_its_name_from_the_entry_that_it_removes() {
    for name_length in [1, 32, 2000] {
        let name = "n".repeat(name_length);
        let mut decoder = Decoder::new();
        add(&mut decoder, &name, &"v".repeat(4096 - 32 - name_length));
        for byte in ["x", "y", "z"] {
            let value = byte.repeat(4096 - 32 - name_length);
            // Entry 62 gives the name.
            let mut block = vec![form::ADDED | 62];
            text(&mut block, &value);
            let field = fields(&[(&name, &value)]);
            assert_eq!(decoded(&mut decoder, &block).as_ref(), Ok(&field));
            assert_eq!(entries(&mut decoder), field);
        }
        // A field that is larger than the table, too.
        let value = "w".repeat(4096);
        let mut block = vec![form::ADDED | 62];
        text(&mut block, &value);
        let field = fields(&[(&name, &value)]);
        assert_eq!(decoded(&mut decoder, &block), Ok(field));
        assert!(entries(&mut decoder).is_empty());
    }
}

#[test]
fn a_smaller_table_removes_the_oldest_entries() {
    let mut decoder = Decoder::new();
    for name in ["a", "b", "c"] {
        add(&mut decoder, name, "1234567");
    }
    // 3 * 40 bytes are there. 0x3f 0x31 is 80.
    assert_eq!(decoded(&mut decoder, &bytes("3f31")), Ok(Vec::new()));
    assert_eq!(names(&mut decoder), ["c", "b"]);
    add(&mut decoder, "d", "1234567");
    assert_eq!(names(&mut decoder), ["d", "c"]);
    // Size 0 and then 4096 again.
    assert_eq!(decoded(&mut decoder, &bytes("203f e11f")), Ok(Vec::new()));
    assert!(entries(&mut decoder).is_empty());
    add(&mut decoder, "e", &"v".repeat(4000));
    assert_eq!(names(&mut decoder), ["e"]);
    // Size 0 lasts until another one is set.
    assert_eq!(decoded(&mut decoder, &bytes("20")), Ok(Vec::new()));
    add(&mut decoder, "f", "");
    assert!(entries(&mut decoder).is_empty());
}

#[test]
fn a_decoder_takes_memory_only_when_it_must_and_gives_it_back() {
    let mut decoder = Decoder::new();
    assert_eq!(decoder.table_bytes(), 0);
    // Fields of the static table, and literal fields that are neither coded nor added.
    decoded(
        &mut decoder,
        &bytes("8286 84 040c 2f73 616d 706c 652f 7061 7468"),
    )
    .unwrap();
    assert_eq!(decoder.table_bytes(), 0);

    // Coded strings.
    decoded(&mut decoder, &bytes("0484 1fff ffff")).unwrap_err();
    decoded(&mut decoder, &bytes("018c f1e3 c2e5 f23a 6ba0 ab90 f4ff")).unwrap();
    assert!((1..200).contains(&decoder.table_bytes()));
    decoder.shrink();
    assert_eq!(decoder.table_bytes(), 0);

    for number in 0..1000 {
        add(
            &mut decoder,
            &format!("name-{number}"),
            &"v".repeat(number % 300),
        );
        assert!(decoder.table_bytes() <= MOST, "{}", decoder.table_bytes());
    }
    let before = entries(&mut decoder);
    let bytes_of_entries = before.iter().map(|(name, value)| name.len() + value.len());
    let needed = bytes_of_entries.sum::<usize>() + before.len() * 6;
    decoder.shrink();
    assert_eq!(decoder.table_bytes(), needed);
    assert_eq!(entries(&mut decoder), before);
    // It goes on as before.
    add(&mut decoder, "next", "value");
    assert_eq!(names(&mut decoder)[0], "next");
    assert_eq!(entries(&mut decoder)[1], before[0]);

    // The most entries: 128 without bytes.
    for _ in 0..200 {
        add(&mut decoder, "", "");
    }
    assert_eq!(entries(&mut decoder).len(), 128);
    assert!(decoder.table_bytes() <= MOST);
    decoded(&mut decoder, &bytes("20")).unwrap();
    decoder.shrink();
    assert_eq!(decoder.table_bytes(), 0);
}

#[test]
fn every_symbol_has_its_code() {
    let mut all: Vec<u8> = huffman::CODE
        .iter()
        .flat_map(|(_, symbols)| *symbols)
        .copied()
        .collect();
    all.sort_unstable();
    assert_eq!(all, (0..=255).collect::<Vec<u8>>());
    for first in 0..=255 {
        for second in 0..=255 {
            let text = [first, second, first];
            let mut out = Vec::new();
            huffman::decode(&huffman_coded(&text), &mut out).unwrap();
            assert_eq!(out, text);
        }
    }
}

/// The most memory that a table takes: 4 KiB of strings, and 128 entries.
const MOST: usize = 4096 + 128 * 6;

/// Decodes a literal field that is added to the dynamic table.
fn add(decoder: &mut Decoder, name: &str, value: &str) {
    let mut block = vec![form::ADDED];
    text(&mut block, name);
    text(&mut block, value);
    assert_eq!(decoded(decoder, &block), Ok(fields(&[(name, value)])));
}

fn text(block: &mut Vec<u8>, text: &str) {
    integer::write(block, 0, form::STRING_PREFIX, text.len());
    block.extend_from_slice(text.as_bytes());
}

/// The names of the entries of the dynamic table.
fn names(decoder: &mut Decoder) -> Vec<String> {
    let entries = entries(decoder);
    assert!(size(&entries) <= 4096);
    let names = entries
        .into_iter()
        .map(|(name, _)| String::from_utf8(name).unwrap());
    names.collect()
}
