package kv

import (
	"errors"
	"time"

	wit "go.bytecodealliance.org/pkg/wit/types"

	host "hostler/bindings/hostler_handler_key_value"
)

// Get reads a value; nil if the key has none. It sees what this attempt has set and deleted.
func Get(key string) ([]byte, error) {
	result := host.Get(key)
	if result.IsErr() {
		return nil, errors.New(result.Err())
	}
	if value := result.Ok(); value.IsSome() {
		// No value, and an empty one, differ.
		return append([]byte{}, value.Some()...), nil
	}
	return nil, nil
}

func set(key string, value []byte, ttl *time.Duration) error {
	expires := wit.None[uint64]()
	if ttl != nil {
		expires = wit.Some(uint64(max(ttl.Milliseconds(), 0)))
	}
	return failed(host.Set(key, value, expires))
}

// Delete deletes a value. This happens together with the ack: both happen, or neither.
func Delete(key string) error {
	return failed(host.Delete(key))
}

// Increment adds to a number, and returns the sum. This happens at once: a message that is handled twice adds
// twice.
func Increment(key string, delta int64) (int64, error) {
	result := host.Increment(key, delta)
	if result.IsErr() {
		return 0, errors.New(result.Err())
	}
	return result.Ok(), nil
}

func failed(result wit.Result[wit.Unit, string]) error {
	if result.IsErr() {
		return errors.New(result.Err())
	}
	return nil
}
