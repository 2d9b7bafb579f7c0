//! Both programs and their documentation: what README.md, docs/ and templates/ promise, and what CONTRIBUTING says of the code.

mod layering;
mod manual;
mod promises;
mod rules;
