// Signs a customer up: creates the account, waits until the trial ends, sends a mail, and publishes. hostler records
// each step that is done, so no retry repeats it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"hostler"
)

type SignUp struct {
	Email        string
	TrialSeconds int64 `json:"trial_seconds"`
}

type Account struct {
	ID        string `json:"id"`
	TrialEnds int64  `json:"trial_ends"`
}

type object = map[string]any

func main() { hostler.Handle(signUp) }

func signUp(ctx context.Context, m hostler.Message, order SignUp) error {
	account, err := hostler.Recall[Account]("account")
	if err != nil {
		return err
	}
	if account == nil {
		account = new(Account)
		if err := post("https://accounts.example.com/accounts", object{"email": order.Email}, account); err != nil {
			return err
		}
		account.TrialEnds = time.Now().Unix() + order.TrialSeconds
		if err := hostler.Remember("account", account); err != nil {
			return err
		}
	}
	if left := time.Until(time.Unix(account.TrialEnds, 0)); left > 0 {
		return hostler.Hold(left)
	}
	mail := object{"template": "trial-ended", "to": order.Email}
	if err := post("https://mail.example.com/messages", mail, new(object)); err != nil {
		return err
	}
	return hostler.Publish("accounts", object{"account": account.ID, "trial": "ended"})
}

func post(url string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	response, err := http.Post(url, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s answered %s", url, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
