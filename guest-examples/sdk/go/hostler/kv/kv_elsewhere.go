//go:build !wasip1

package kv

import (
	"errors"
	"time"
)

// So that tests on this machine build.
var errElsewhere = errors.New("hostler: only a handler on hostler has keys")

// Get reads a value; nil if the key has none. It sees what this attempt has set and deleted.
func Get(key string) ([]byte, error) { return nil, errElsewhere }

func set(key string, value []byte, ttl *time.Duration) error { return errElsewhere }

// Delete deletes a value. This happens together with the ack: both happen, or neither.
func Delete(key string) error { return errElsewhere }

// Increment adds to a number, and returns the sum. This happens at once: a message that is handled twice adds
// twice.
func Increment(key string, delta int64) (int64, error) { return 0, errElsewhere }
