// Package kv keeps values between messages, below the prefix of [grant.key-value].
package kv
