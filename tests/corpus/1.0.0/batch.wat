;; A handler of batches of the first release: acknowledges each message.
(component
  (import "hostler:handler/types@1.0.0" (instance $types
    (type $headers (list (tuple string string)))
    (type $body (list u8))
    (type $message (record
      (field "id" string)
      (field "queue" string)
      (field "body" $body)
      (field "headers" $headers)
      (field "attempt" u32)
      (field "max-attempts" u32)
      (field "enqueued-ms" u64)))
    (type $delay (option u64))
    (type $reason (option string))
    (type $outcome (variant
      (case "ack") (case "nack-requeue" $delay) (case "drop" $reason)))
    (export "message" (type (eq $message)))
    (export "outcome" (type (eq $outcome)))))
  (alias export $types "message" (type $message))
  (alias export $types "outcome" (type $outcome))
  (core module $module
    (memory (export "memory") 16)
    (global $top (mut i32) (i32.const 1024))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      global.get $top
      global.get $top local.get 3 i32.add i32.const 7 i32.add i32.const -8 i32.and
      global.set $top)
    ;; As many outcomes as there are messages: 24 bytes each, and an `ack` is all zeros.
    (func (export "handle-batch") (param i32 i32) (result i32)
      (i32.store (i32.const 16) (i32.const 524288))
      (i32.store (i32.const 20) (local.get 1))
      i32.const 16))
  (core instance $core (instantiate $module))
  (alias core export $core "memory" (core memory $memory))
  (alias core export $core "realloc" (core func $realloc))
  (alias core export $core "handle-batch" (core func $batch))
  (func $handle (param "messages" (list $message)) (result (list $outcome))
    (canon lift (core func $batch) (memory $memory) (realloc $realloc)))
  (instance $handler (export "handle-batch" (func $handle)))
  (export "hostler:handler/batch-handler@1.0.0" (instance $handler)))
