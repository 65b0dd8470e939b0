//! Programs that are made up: components of several libraries, inner components, and modules with two instances.
//!
//! A library has a memory, a table and globals, or takes those of another one, and passes all of them on. Each
//! function gets how deep it may call, so every program ends.

use std::fmt::Write;

use fastrand::Rng;

/// A program, as text.
pub(super) struct Program {
    pub(super) text: String,
    pub(super) has: Features,
}

/// What a program has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Features {
    /// A snapshot of it may be made: its start says nothing, and its code has nothing that prevents a snapshot.
    pub(super) quiet: bool,
    /// A component with core modules in a component.
    pub(super) inner: bool,
    /// A component in a component that has no core module.
    pub(super) shim: bool,
    /// An instance of a component that is not the first one of it.
    pub(super) inner_twice: bool,
    /// A core module with two instances.
    pub(super) twice: bool,
    /// A 64-bit memory.
    pub(super) wide: bool,
    /// A core module that the merge cannot read.
    pub(super) unread: bool,
    /// A start function.
    pub(super) starts: bool,
    /// A segment that is not inside its table or memory.
    pub(super) outside: bool,
}

/// The program with this number.
pub(super) fn program(seed: u64) -> Program {
    let mut rng = Rng::with_seed(seed);
    let has = Features {
        quiet: rng.u8(..3) == 0,
        ..Features::default()
    };
    let mut maker = Maker { rng, has, next: 0 };
    let text = maker.component("", 0);
    Program {
        text,
        has: maker.has,
    }
}

/// How deep components are in each other.
const DEPTH_MAX: u32 = 2;

/// The type of the functions that components pass to each other.
const TYPE: &str = r#"(param "x" u32) (param "d" u32) (result u32)"#;

struct Maker {
    rng: Rng,
    has: Features,
    /// The number of the next item.
    next: u32,
}

/// The items of a component so far.
#[derive(Default)]
struct Level {
    text: String,
    codes: Vec<Code>,
    libraries: Vec<Library>,
    /// Functions of other components.
    functions: Vec<String>,
    /// Core functions that say a number.
    notes: Vec<String>,
    /// Components with core modules.
    components: Vec<u32>,
    exports: String,
}

/// A core module.
#[derive(Clone)]
struct Code {
    number: u32,
    /// The kind and the name of each import, and the module that it is from.
    imports: Vec<(&'static str, &'static str, usize)>,
    wide: bool,
}

/// An instance of a core module.
struct Library {
    number: u32,
    wide: bool,
}

/// The modules that libraries import from.
const FROM: [&str; 2] = ["l", "k"];

impl Maker {
    fn one_in(&mut self, count: u32) -> bool {
        self.rng.u32(..count) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.rng.usize(..choices.len())]
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// A component with this name. It imports `note` and `f`, and exports functions of the same type as `f`.
    fn component(&mut self, name: &str, depth: u32) -> String {
        let mut level = Level::default();
        write!(
            level.text,
            r#"(component {name}
            (import "note" (func $noted (param "x" u32)))
            (import "f" (func $given {TYPE}))
            (core func $note (canon lower (func $noted)))"#
        )
        .unwrap();
        level.functions.push("$given".to_owned());
        level.notes.push("$note".to_owned());
        for _ in 0..self.rng.u32(2..7) {
            match self.rng.u32(..12) {
                0 | 1 if depth < DEPTH_MAX && !self.has.quiet => self.inner(&mut level, depth),
                2 => self.shim(&mut level),
                3 if !level.codes.is_empty() && !self.has.quiet => {
                    let code = level.codes[self.rng.usize(..level.codes.len())].clone();
                    self.has.twice = true;
                    self.instance(&mut level, &code);
                }
                4 if !level.libraries.is_empty() => {
                    let (number, of) = (self.number(), self.library(&level, false));
                    writeln!(
                        level.text,
                        r#"(core func $n{number} (canon lower (func $noted) (memory (core memory $i{of} "memory"))))"#
                    )
                    .unwrap();
                    level.notes.push(format!("$n{number}"));
                }
                _ => {
                    let code = self.code(&mut level);
                    self.instance(&mut level, &code);
                    level.codes.push(code);
                }
            }
        }
        if level.libraries.is_empty() {
            let code = self.code(&mut level);
            self.instance(&mut level, &code);
        }
        let of = self.library(&level, false);
        let lifted = self.lifted(&mut level, of, "f");
        writeln!(level.exports, "(export \"f\" (func {lifted}))").unwrap();
        level.text + &level.exports + ")\n"
    }

    /// The number of a library.
    fn library(&mut self, level: &Level, wide: bool) -> u32 {
        let known = level.libraries.iter();
        let known = known.filter(|library| library.wide || !wide);
        let known: Vec<u32> = known.map(|library| library.number).collect();
        self.of(&known)
    }

    /// A function of the component that is one of a library.
    fn lifted(&mut self, level: &mut Level, library: u32, name: &str) -> String {
        let lifted = format!("$l{}", self.number());
        writeln!(
            level.text,
            r#"(func {lifted} {TYPE} (canon lift (core func $i{library} "{name}")))"#
        )
        .unwrap();
        lifted
    }

    /// A component in the component, and an instance of it; or one more instance.
    fn inner(&mut self, level: &mut Level, depth: u32) {
        self.has.inner = true;
        let again = !level.components.is_empty() && self.one_in(3);
        let component = if again {
            self.has.inner_twice = true;
            self.of(&level.components)
        } else {
            let component = self.number();
            let text = self.component(&format!("$c{component}"), depth + 1);
            level.text.push_str(&text);
            level.components.push(component);
            component
        };
        let given = match level.libraries.is_empty() || !self.one_in(4) {
            true => level.functions[self.rng.usize(..level.functions.len())].clone(),
            false => {
                let of = self.library(level, false);
                self.lifted(level, of, "f")
            }
        };
        self.made(
            level,
            component,
            &format!(r#"(with "note" (func $noted)) (with "f" (func {given}))"#),
            true,
        );
    }

    /// A component that passes a function on.
    fn shim(&mut self, level: &mut Level) {
        self.has.shim = true;
        let component = self.number();
        writeln!(
            level.text,
            r#"(component $c{component} (import "f" (func $f {TYPE})) (export "f" (func $f)))"#
        )
        .unwrap();
        let given = match level.libraries.is_empty() || self.one_in(2) {
            true => level.functions[self.rng.usize(..level.functions.len())].clone(),
            false => {
                let of = self.library(level, false);
                self.lifted(level, of, "f")
            }
        };
        // An imported function cannot be exported.
        let exports = given.starts_with("$l");
        let with = format!(r#"(with "f" (func {given}))"#);
        self.made(level, component, &with, exports);
    }

    /// An instance of a component, and its function.
    fn made(&mut self, level: &mut Level, component: u32, with: &str, exports: bool) {
        let number = self.number();
        writeln!(
            level.text,
            r#"(instance $e{number} (instantiate $c{component} {with}))
            (alias export $e{number} "f" (func $f{number}))"#
        )
        .unwrap();
        level.functions.push(format!("$f{number}"));
        if exports && self.one_in(2) {
            writeln!(level.exports, "(export \"e{number}\" (func $f{number}))").unwrap();
        }
    }

    /// A core module.
    fn code(&mut self, level: &mut Level) -> Code {
        let number = self.number();
        let mut code = Code {
            number,
            imports: Vec::new(),
            wide: false,
        };
        let mut module = Module::default();
        let others = !level.libraries.is_empty();
        let mut import = |maker: &mut Self, kind, name, item: &str| {
            let from = maker.rng.usize(..2);
            code.imports.push((kind, name, from));
            writeln!(
                module.imports,
                r#"(import "{}" "{name}" {item})"#,
                FROM[from]
            )
            .unwrap();
        };
        let mut own = String::new();
        if others && !self.one_in(3) {
            import(self, "memory", "memory", "(memory $memory 1)");
        } else {
            let size = self.of(&["1", "1", "2", "1 3"]);
            writeln!(own, "(memory $memory {size})").unwrap();
        }
        let knows_wide = level.libraries.iter().any(|library| library.wide);
        if knows_wide && self.one_in(2) {
            code.wide = true;
            import(self, "memory", "wide", "(memory $wide i64 1)");
        } else if !self.has.quiet && self.one_in(10) {
            (code.wide, self.has.wide) = (true, true);
            own.push_str("(memory $wide i64 1 4)\n");
        }
        if others && !self.one_in(3) {
            import(self, "table", "table", "(table $table 4 funcref)");
        } else {
            let size = self.of(&["4", "4 8", "6"]);
            writeln!(own, "(table $table {size} funcref)").unwrap();
        }
        // The offsets of segments may name what is imported.
        let mut offsets = vec!["(i32.const 0)", "(i32.const 1)", "(i32.const 2)"];
        if others && !self.one_in(3) {
            import(self, "global", "base", "(global $their i32)");
            offsets.extend(["(global.get $their)"; 3]);
            offsets.push("(i32.add (global.get $their) (i32.const 1))");
            let value = self.of(&[
                "(global.get $their)",
                "(i32.add (i32.const 1) (global.get $their))",
            ]);
            match self.one_in(2) {
                true => writeln!(own, "(global $base i32 {value})").unwrap(),
                false => own.push_str(
                    "(export \"base\" (global $their)) (export \"base-too\" (global $their))\n",
                ),
            }
        } else {
            let value = self.of(&["0", "1"]);
            writeln!(own, "(global $base i32 (i32.const {value}))").unwrap();
        }
        if own.contains("$base ") {
            own.push_str("(export \"base\" (global $base)) (export \"base-too\" (global $base))\n");
        }
        if others && !self.one_in(3) {
            import(self, "global", "count", "(global $count (mut i32))");
        } else {
            own.push_str("(global $count (mut i32) (i32.const 5))\n");
        }
        import(self, "func", "note", "(func $note (param i32))");
        let mut calls = Vec::new();
        let is_started = others && self.one_in(2);
        if is_started {
            import(self, "func", "begin", "(func $others-begin (type $t))");
        }
        if !self.one_in(3) {
            import(self, "func", "f", "(func $other (type $t))");
            calls.push("$other");
        }
        module.own = own;
        let steps = Steps {
            calls,
            wide: code.wide,
        };
        self.segments(&mut module, &offsets);
        self.functions(&mut module, &steps, is_started);
        let types = match !self.has.quiet && self.one_in(25) {
            true => {
                self.has.unread = true;
                "(rec (type (func)) (type (func (param i32))))"
            }
            false => "",
        };
        writeln!(
            level.text,
            r#"(core module $m{number}
            (type $t (func (param i32 i32) (result i32))) {types}
            {} {} {}
            (export "memory" (memory $memory)) (export "memory-too" (memory $memory))
            (export "table" (table $table)) (export "table-too" (table $table))
            (export "count" (global $count)) (export "count-too" (global $count))
            (export "note" (func $note)) (export "note-too" (func $note))
            (export "f" (func $f)) (export "f-too" (func $f))
            (export "begin" (func $begin)) (export "begin-too" (func $begin)))"#,
            module.imports, module.own, module.rest
        )
        .unwrap();
        if code.wide {
            // Before the end of the module.
            level.text.truncate(level.text.trim_end().len() - 1);
            level.text.push_str(
                "(export \"wide\" (memory $wide)) (export \"wide-too\" (memory $wide)))\n",
            );
        }
        code
    }

    /// Segments of a core module.
    fn segments(&mut self, module: &mut Module, offsets: &[&str]) {
        for _ in 0..self.rng.u32(..3) {
            let items = self.of(&[
                "func $g",
                "func $f $g",
                "func $f",
                "funcref (ref.func $g) (ref.null func)",
                "func",
            ]);
            let offset = match self.one_in(60) {
                true => self.outside("(i32.const 9)"),
                false => self.of(offsets),
            };
            writeln!(
                module.rest,
                "(elem (table $table) (offset {offset}) {items})"
            )
            .unwrap();
        }
        for _ in 0..self.rng.u32(..3) {
            let (byte, last) = (self.rng.u8(1..9), self.rng.u8(1..9));
            let offset = match self.one_in(60) {
                true => self.outside("(i32.const 131071)"),
                false => self.of(offsets),
            };
            writeln!(
                module.rest,
                "(data (memory $memory) (offset {offset}) \"\\0{byte}\\0{last}\")"
            )
            .unwrap();
        }
    }

    fn outside(&mut self, offset: &'static str) -> &'static str {
        self.has.outside = true;
        offset
    }

    /// The functions of a core module.
    fn functions(&mut self, module: &mut Module, steps: &Steps, is_started: bool) {
        let (first, last) = (self.rng.u8(1..9), self.rng.u8(1..9));
        let own = self.rng.u8(1..9);
        let mut body = String::new();
        for _ in 0..self.rng.u32(1..5) {
            body.push_str(&self.step(steps));
        }
        let ends = match steps.calls.is_empty() || !self.one_in(6) {
            true => "(local.get $x)",
            false => "(return_call $other (local.get $x) (local.get $d))",
        };
        let mut begins = String::new();
        for _ in 0..self.rng.u32(1..4) {
            begins.push_str(&match self.has.quiet {
                true => self.quiet_step(steps),
                false => self.step(steps),
            });
        }
        if is_started && self.one_in(2) {
            begins.push_str("(local.set $x (call $others-begin (local.get $x) (local.get $d)))");
        }
        let deep = "(if (i32.eqz (local.get $d)) (then (return (local.get $x))))
            (local.set $d (i32.sub (local.get $d) (i32.const 1)))";
        writeln!(
            module.rest,
            r#"(memory $own 1) (table $listed-there 2 funcref)
            (global $long (mut i64) (i64.const {own})) (global $real (mut f64) (f64.const 0.5))
            (global $same funcref (ref.func $g))
            (data $passive "\0{first}\0{last}") (elem $listed func $g $f) (elem declare func $g $f)
            (func $f (type $t) (param $x i32) (param $d i32) (result i32) {deep} {body} {ends})
            (func $begin (type $t) (param $x i32) (param $d i32) (result i32) {deep} {begins} (local.get $x))
            (func $g (type $t) (param $x i32) (param $d i32) (result i32) (i32.add (local.get $x) (i32.const {own})))
            (func (export "look") (type $t) (param $x i32) (param $d i32) (result i32) (local $at i32)
                (local.set $x (i32.mul (i32.const 31) (i32.add (global.get $count) (i32.load $memory (i32.const 0)))))
                (local.set $x (i32.add (local.get $x) (i32.mul (i32.const 31) (i32.load $memory (i32.const 4)))))
                (local.set $x (i32.add (local.get $x) (i32.load $own (i32.const 0))))
                (local.set $x (i32.add (local.get $x) (i32.wrap_i64 (global.get $long))))
                (local.set $x (i32.add (local.get $x) (i32.trunc_sat_f64_u (global.get $real))))
                (local.set $x (i32.add (local.get $x) (i32.mul (i32.const 1000) (memory.size $memory))))
                (local.set $x (i32.add (local.get $x) (i32.mul (i32.const 7) (table.size $table))))
                (loop $next
                    (local.set $x (i32.add (i32.mul (i32.const 3) (local.get $x)) (ref.is_null (table.get $table (local.get $at)))))
                    (local.set $at (i32.add (local.get $at) (i32.const 1)))
                    (br_if $next (i32.lt_u (local.get $at) (table.size $table))))
                (local.get $x))"#
        )
        .unwrap();
        if self.one_in(if self.has.quiet { 3 } else { 5 }) {
            self.has.starts = true;
            // Only a long start is worth a snapshot.
            let waits = match self.has.quiet && self.one_in(2) {
                true => {
                    "(loop $again (local.set $n (i32.add (local.get $n) (i32.const 1)))
                    (br_if $again (i32.lt_u (local.get $n) (i32.const 20000))))"
                }
                false => "",
            };
            writeln!(
                module.rest,
                "(func $start (local $n i32) {waits} (drop (call $begin (i32.const 1) (i32.const 3)))) (start $start)"
            )
            .unwrap();
        }
    }

    /// Some code of a function that changes `$x`.
    fn step(&mut self, steps: &Steps) -> String {
        let at = self.rng.u32(..4);
        // Code that prevents a snapshot.
        let last = if self.has.quiet { 12 } else { 20 };
        match self.rng.u32(..last) {
            0 | 1 if !steps.calls.is_empty() => {
                "(local.set $x (call $other (local.get $x) (local.get $d)))".to_owned()
            }
            2 | 3 => format!(
                "(if (i32.eqz (ref.is_null (table.get $table (i32.const {at})))) (then
                    (local.set $x (call_indirect $table (type $t) (local.get $x) (local.get $d) (i32.const {at})))))"
            ),
            4 if self.one_in(4) => format!(
                "(local.set $x (call_indirect $table (type $t) (local.get $x) (local.get $d) (i32.const {at})))"
            ),
            4 | 5 => "(call $note (local.get $x))".to_owned(),
            12 => format!("(table.set $table (i32.const {at}) (ref.func $g))"),
            13 => format!("(table.set $table (i32.const {at}) (global.get $same))"),
            14 => "(if (i32.lt_u (table.size $table) (i32.const 8)) (then
                    (drop (table.grow $table (ref.func $f) (i32.const 1)))))"
                .to_owned(),
            15 => "(data.drop $passive)".to_owned(),
            16 => "(elem.drop $listed)".to_owned(),
            17 => format!("(table.init $table $listed (i32.const {at}) (i32.const 1) (i32.const 1))"),
            18 => "(table.copy $listed-there $table (i32.const 0) (i32.const 1) (i32.const 2))
                (if (i32.eqz (ref.is_null (table.get $listed-there (i32.const 0)))) (then
                    (local.set $x (call_indirect $listed-there (type $t) (local.get $x) (local.get $d) (i32.const 0)))))"
                .to_owned(),
            19 if self.one_in(4) => "(drop (i32.load $memory (i32.const 300000)))".to_owned(),
            _ => self.quiet_step(steps),
        }
    }

    /// Code that a start with a snapshot may have.
    fn quiet_step(&mut self, steps: &Steps) -> String {
        let at = self.rng.u32(..4);
        match self.rng.u32(..10) {
            0 => "(global.set $count (i32.add (global.get $count) (local.get $x)))".to_owned(),
            1 => format!("(i32.store8 $memory (i32.const {at}) (i32.add (local.get $x) (global.get $count)))"),
            2 => "(local.set $x (i32.add (local.get $x) (i32.load $memory (i32.const 0))))".to_owned(),
            3 => "(if (i32.lt_u (memory.size $memory) (i32.const 3)) (then
                    (local.set $x (i32.add (local.get $x) (memory.grow $memory (i32.const 1))))
                    (i32.store $memory (i32.const 65536) (local.get $x))))"
                .to_owned(),
            4 => format!("(memory.init $memory $passive (i32.const {at}) (i32.const 0) (i32.const 1))"),
            5 => "(i32.store $own (i32.const 2) (local.get $x))
                (local.set $x (i32.add (local.get $x) (i32.load $own (i32.const 0))))"
                .to_owned(),
            6 => "(global.set $long (i64.add (global.get $long) (i64.extend_i32_u (local.get $x))))".to_owned(),
            7 => "(global.set $real (f64.add (global.get $real) (f64.convert_i32_u (i32.and (local.get $x) (i32.const 255)))))"
                .to_owned(),
            8 if steps.wide => format!(
                "(i64.store8 $wide (i64.const {at}) (i64.extend_i32_u (local.get $x)))
                (memory.copy $memory $wide (i32.const {at}) (i64.const 0) (i32.const 3))"
            ),
            _ => "(memory.copy $own $memory (i32.const 1) (i32.const 0) (i32.const 5))
                (local.set $x (i32.add (local.get $x) (i32.const 1)))"
                .to_owned(),
        }
    }

    /// An instance of a core module.
    fn instance(&mut self, level: &mut Level, code: &Code) {
        let number = self.number();
        let whole = !level.libraries.is_empty() && self.one_in(4);
        let mut lists = [String::new(), String::new()];
        let mut used = [false; 2];
        for (kind, name, from) in &code.imports {
            used[*from] = true;
            let item = match *name {
                "note" => format!(
                    "(func {})",
                    level.notes[self.rng.usize(..level.notes.len())]
                ),
                "f" if level.libraries.is_empty() || self.one_in(4) => {
                    // A call of a component in this one is a fault.
                    let function = match self.one_in(8) {
                        true => &level.functions[self.rng.usize(..level.functions.len())],
                        false => &level.functions[0],
                    };
                    let lowered = self.number();
                    writeln!(
                        level.text,
                        "(core func $w{lowered} (canon lower (func {function})))"
                    )
                    .unwrap();
                    format!("(func $w{lowered})")
                }
                _ => {
                    let of = self.library(level, *name == "wide");
                    let too = self.of(&["", "-too"]);
                    format!("({kind} $i{of} \"{name}{too}\")")
                }
            };
            write!(lists[*from], "(export \"{name}\" {item})").unwrap();
        }
        let mut with = String::new();
        for from in 0..2 {
            let needs_wide = code
                .imports
                .iter()
                .any(|(_, name, of)| *of == from && *name == "wide");
            let given = match whole && from == 1 {
                true => format!("$i{}", self.library(level, needs_wide)),
                false => lists[from].clone(),
            };
            if used[from] {
                write!(with, "(with \"{}\" (instance {given}))", FROM[from]).unwrap();
            }
        }
        writeln!(
            level.text,
            "(core instance $i{number} (instantiate $m{} {with}))",
            code.number
        )
        .unwrap();
        level.libraries.push(Library {
            number,
            wide: code.wide,
        });
        for (name, of) in [("f", 2), ("look", 3)] {
            if self.rng.u32(..of) > 0 {
                let lifted = self.lifted(level, number, name);
                writeln!(
                    level.exports,
                    "(export \"i{number}-{name}\" (func {lifted}))"
                )
                .unwrap();
            }
        }
    }
}

/// The text of a core module.
#[derive(Default)]
struct Module {
    imports: String,
    own: String,
    rest: String,
}

/// What the code of a core module may use.
struct Steps {
    calls: Vec<&'static str>,
    wide: bool,
}
