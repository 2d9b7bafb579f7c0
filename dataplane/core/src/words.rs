//! Enums whose variants have words: labels of metrics, fields of logs, words of a page.

/// Declares an enum with a word for each variant: `ALL` variants, the `word` and the `index` of one, and its `Display`.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[$doc])* $variant,)*
        }

        #[allow(dead_code, reason = "not every enum needs all of these")]
        impl $name {
            /// All variants, in the order of their indexes.
            $vis const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// Its word.
            $vis const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// Its index in an array with one element for each variant.
            $vis const fn index(self) -> usize {
                self as usize
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}
