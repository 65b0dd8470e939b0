// Verifies the signature of a webhook, and passes the event on to the queue of its type.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"hostler"
)

func main() { hostler.Handle(receive) }

func receive(ctx context.Context, m hostler.Message, body []byte) error {
	secret, err := hostler.Secret("webhook")
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	signature, _ := hex.DecodeString(strings.TrimPrefix(m.Headers["x-hub-signature-256"], "sha256="))
	if !hmac.Equal(signature, mac.Sum(nil)) {
		return hostler.Drop("the signature is wrong")
	}
	var event struct{ Action string }
	if err := json.Unmarshal(body, &event); err != nil {
		return hostler.Drop(err.Error())
	}
	return hostler.Publish("events", body, hostler.Header("action", event.Action))
}
