//! The library exports what Python looks for when it imports `fullbore._native`.

#[test]
fn the_module_has_the_entry_point_of_its_name() {
    // It lies beside this test, target/debug/deps/exports-…
    let test = std::env::current_exe().unwrap();
    let library = std::fs::read(test.with_file_name("libfullbore_python.so")).unwrap();
    let name = b"PyInit__native\0";
    assert!(library.windows(name.len()).any(|bytes| bytes == name));
}
