;; A handler that does little but to write: the worst case for marks. Tests put other code in its place, and
;; other items in places that have a name.
(component
  ;; IMPORTS
  (core module $guest
    ;; ITEMS
    (memory (export "memory") 16)
    (global $free (mut i32) (i32.const 0x10000))
    (global $calls (mut i64) (i64.const 0))
    (data (i32.const 1024) "these bytes are there from the begin")
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
      (global.set $free (i32.add (local.get $at) (local.get 3)))
      (local.get $at))
    ;; The result is an acknowledgement: what is at 16 stays 0.
    (func (export "handle") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32)
      (local $left i32) (local $at i32)
      ;; BEGIN
      ;; Writes 16 Ki words eight times: to 64 KiB.
      (local.set $left (i32.const 131072))
      (loop $next
        (i32.store
          (i32.add (i32.const 0x80000) (i32.and (local.get $at) (i32.const 0xfffc)))
          (i32.mul (local.get $left) (i32.const 0x9e3779b1)))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
      ;; END
      (global.set $calls (i64.add (global.get $calls) (i64.const 1)))
      (i32.const 16))
    (func (export "post") (param i32)
      (global.set $free (i32.const 0x10000))))
  ;; INSTANCE
  (core instance $i (instantiate $guest))
  ;; BEHIND
  (type $message (record
    (field "id" string) (field "queue" string) (field "body" (list u8))
    (field "headers" (list (tuple string string)))
    (field "attempt" u32) (field "max-attempts" u32) (field "enqueued-ms" u64)))
  (type $outcome (variant
    (case "ack") (case "nack-requeue" (option u64)) (case "drop" (option string))))
  (func $handle (param "message" $message) (result $outcome)
    (canon lift (core func $i "handle")
      (memory (core memory $i "memory")) (realloc (core func $i "realloc"))
      (post-return (core func $i "post"))))
  (component $named
    (type $message (record
      (field "id" string) (field "queue" string) (field "body" (list u8))
      (field "headers" (list (tuple string string)))
      (field "attempt" u32) (field "max-attempts" u32) (field "enqueued-ms" u64)))
    (type $outcome (variant
      (case "ack") (case "nack-requeue" (option u64)) (case "drop" (option string))))
    (import "import-type-message" (type $m (eq $message)))
    (import "import-type-outcome" (type $o (eq $outcome)))
    (import "import-func-handle" (func $handle (param "message" $m) (result $o)))
    (export $em "message" (type $m))
    (export $eo "outcome" (type $o))
    (export "handle" (func $handle) (func (param "message" $em) (result $eo))))
  (instance $exported (instantiate $named
    (with "import-func-handle" (func $handle))
    (with "import-type-message" (type $message))
    (with "import-type-outcome" (type $outcome))))
  (export "hostler:handler/message-handler@1.1.0" (instance $exported)))
