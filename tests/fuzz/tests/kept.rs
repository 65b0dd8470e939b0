//! What the parsers do with kept inputs. `make miri` runs this in miri, which finds undefined behaviour in the crates
//! that read the bytes; the parsers themselves have no unsafe code.
#![cfg(not(feature = "sandbox"))]

use std::path::Path;

use hostler_fuzz::bodies;

/// The inputs of each parser: miri takes some hundred times as long as the processor.
const INPUTS: usize = 40;

#[test]
fn parsers_of_kept_inputs_do_nothing_undefined() {
    for (target, parser) in bodies::TARGETS {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(target);
        let files = std::fs::read_dir(&dir).expect("`make miri` unpacks the inputs");
        let mut inputs: Vec<_> = files
            .map(|file| std::fs::read(file.expect("a file").path()).expect("its bytes"))
            .filter(|input| input.len() <= 256)
            .collect();
        // The same ones each time, of all lengths.
        inputs.sort();
        inputs.sort_by_key(Vec::len);
        let step = (inputs.len() / INPUTS).max(1);
        let chosen: Vec<_> = inputs.iter().step_by(step).collect();
        assert!(chosen.len() >= INPUTS, "{target}: {} inputs", chosen.len());
        for input in &chosen {
            parser(input);
        }
        println!("{target}: {} inputs", chosen.len());
    }
}
