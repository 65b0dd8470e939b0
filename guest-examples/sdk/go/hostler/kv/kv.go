// Package kv keeps values between messages, below the prefix of [grant.key-value].
package kv

import (
	"encoding/json"
	"time"
)

// Set sets a value: a string or []byte as it is, another value as JSON. This happens together with the ack: both
// happen, or neither.
func Set(key string, value any) error { return setAny(key, value, nil) }

// SetFor sets a value that expires this time after the ack.
func SetFor(key string, value any, ttl time.Duration) error { return setAny(key, value, &ttl) }

func setAny(key string, value any, ttl *time.Duration) error {
	switch value := value.(type) {
	case []byte:
		return set(key, value, ttl)
	case string:
		return set(key, []byte(value), ttl)
	default:
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		return set(key, text, ttl)
	}
}
