// Verifies the signature of a webhook, and passes each event on once, with its action.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"hostler"
	"hostler/kv"
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
	var event struct{ ID, Action string }
	if err := json.Unmarshal(body, &event); err != nil {
		return hostler.Drop(err.Error())
	} else if event.ID == "" {
		return errors.New("an event without an id")
	}
	if seen, err := kv.Get("seen:" + event.ID); err != nil || seen != nil {
		return err
	}
	if err := kv.SetFor("seen:"+event.ID, "1", 24*time.Hour); err != nil {
		return err
	}
	return hostler.Publish("events", body, hostler.Header("action", event.Action))
}
