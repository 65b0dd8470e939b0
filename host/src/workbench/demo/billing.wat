;; The handler of `hostler demo`: a program of WASIp1, which charges an order. The order is its stdin:
;; {"id":"A-17","currency":"EUR","cents":950}
;;
;; It ends with 0 (ack), with 1 if it does not know the currency (a failed attempt), and with 65 if there is nothing
;; to charge (drop). Its last line on stderr is the cause.
;;
;; Addresses: 0 the stretch of a read or a write, 8 how many bytes that was, 32 the texts, 1024 the order.
(module
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 32) "\"id\":\"")
  (data (i32.const 48) "\"currency\":\"")
  (data (i32.const 64) "\"cents\":")
  ;; The currencies that it knows. The mistake: one is missing. The corrected version has it instead of `---`.
  (data (i32.const 80) "EUR GBP USD --- ")
  (data (i32.const 96) "order ")
  (data (i32.const 112) ": unknown currency ")
  (data (i32.const 144) ": nothing to charge")
  (data (i32.const 176) " is charged")
  (data (i32.const 192) "no order")
  (data (i32.const 208) "\n")
  ;; The end of the order.
  (global $end (mut i32) (i32.const 1024))

  ;; Read the order. One that is longer than the memory is cut.
  (func $read
    (loop $more
      (i32.store (i32.const 0) (global.get $end))
      (i32.store (i32.const 4) (i32.sub (i32.const 65536) (global.get $end)))
      (i32.store (i32.const 8) (i32.const 0))
      (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (global.set $end (i32.add (global.get $end) (i32.load (i32.const 8))))
      (br_if $more (i32.load (i32.const 8)))))

  ;; Write a text to stderr.
  (func $say (param $text i32) (param $length i32)
    (i32.store (i32.const 0) (local.get $text))
    (i32.store (i32.const 4) (local.get $length))
    (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8))))

  ;; What stands behind a text in the order; 0: the text is not there.
  (func $behind (param $text i32) (param $length i32) (result i32)
    (local $at i32) (local $same i32)
    (local.set $at (i32.const 1024))
    (block $missing
      (loop $next
        (br_if $missing
          (i32.gt_u (i32.add (local.get $at) (local.get $length)) (global.get $end)))
        (local.set $same (i32.const 0))
        (block $differs
          (loop $more
            (br_if $differs (i32.ne
              (i32.load8_u (i32.add (local.get $at) (local.get $same)))
              (i32.load8_u (i32.add (local.get $text) (local.get $same)))))
            (local.set $same (i32.add (local.get $same) (i32.const 1)))
            (br_if $more (i32.lt_u (local.get $same) (local.get $length))))
          (return (i32.add (local.get $at) (local.get $length))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    i32.const 0)

  ;; The length of a text that ends with a quotation mark.
  (func $length (param $text i32) (result i32)
    (local $at i32)
    (local.set $at (local.get $text))
    (block $end
      (loop $next
        (br_if $end (i32.ge_u (local.get $at) (global.get $end)))
        (br_if $end (i32.eq (i32.load8_u (local.get $at)) (i32.const 34)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (i32.sub (local.get $at) (local.get $text)))

  ;; The first three letters of a text, as a number.
  (func $code (param $text i32) (result i32)
    (i32.and (i32.load (local.get $text)) (i32.const 0xffffff)))

  (func $is_known (param $currency i32) (result i32)
    (local $known i32)
    (local.set $known (i32.const 80))
    (loop $next
      (if (i32.eq (call $code (local.get $currency)) (call $code (local.get $known)))
        (then (return (i32.const 1))))
      (local.set $known (i32.add (local.get $known) (i32.const 4)))
      (br_if $next (i32.lt_u (local.get $known) (i32.const 96))))
    i32.const 0)

  (func (export "_start")
    (local $id i32) (local $currency i32) (local $cents i32)
    (call $read)
    (local.set $id (call $behind (i32.const 32) (i32.const 6)))
    (local.set $currency (call $behind (i32.const 48) (i32.const 12)))
    (local.set $cents (call $behind (i32.const 64) (i32.const 8)))
    (if (i32.eqz (i32.mul (local.get $id) (i32.mul (local.get $currency) (local.get $cents))))
      (then
        (call $say (i32.const 192) (i32.const 8))
        (call $say (i32.const 208) (i32.const 1))
        (call $exit (i32.const 65))))
    (call $say (i32.const 96) (i32.const 6))
    (call $say (local.get $id) (call $length (local.get $id)))
    (if (i32.eqz (call $is_known (local.get $currency)))
      (then
        (call $say (i32.const 112) (i32.const 19))
        (call $say (local.get $currency) (call $length (local.get $currency)))
        (call $say (i32.const 208) (i32.const 1))
        (call $exit (i32.const 1))))
    (if (i32.eq (i32.load8_u (local.get $cents)) (i32.const 48))
      (then
        (call $say (i32.const 144) (i32.const 19))
        (call $say (i32.const 208) (i32.const 1))
        (call $exit (i32.const 65))))
    (call $say (i32.const 176) (i32.const 11))
    (call $say (i32.const 208) (i32.const 1))))
