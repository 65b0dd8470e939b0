// Package hostler makes a program in Go a handler of messages. The program calls [Handle] in its main
// function, and hostler calls the handler for each message.
package hostler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Message is one message, as one attempt receives it.
type Message struct {
	// ID is the same for every attempt at this message, also after requeues and replays.
	ID string
	// Queue is the queue of the message: the key of a stream or a list, or the name of a channel.
	Queue string
	// Body is the body, byte for byte.
	Body []byte
	// Headers have names in lower case. Of several headers with one name, it has the last.
	Headers map[string]string
	// Attempt is the number of this start, counted from 1.
	Attempt int
	// MaxAttempts is the number of starts after which the message is given up; 0 = never.
	MaxAttempts int
	// Enqueued is the time when the message was published; zero if it is not known.
	Enqueued time.Time
}

// Handle sets the handler. Call it once, in the function main. The payload is the body, read as JSON; a body
// that is not such JSON is dropped. If T is []byte, the payload is the body as it is.
//
// The message is acked if the handler returns nil. After another error the message comes again, after the backoff
// of the queue, and the error is the cause of its death when no attempt is left. [Drop] and [RetryAfter] make errors
// that end an attempt otherwise. A panic is a fault: the message comes again as well.
//
// The goroutines that the handler starts run to their end before the message is acked. If one waits for something
// that does not come, the attempt is a fault.
//
// The deadline of the context is the end of the attempt.
func Handle[T any](handle func(context.Context, Message, T) error) {
	serve(handle, func(ctx context.Context, message Message) error {
		var payload T
		if err := read(message.Body, &payload); err != nil {
			return Dropf("the body is no %T: %v", payload, err)
		}
		return handle(ctx, message, payload)
	})
}

func read(body []byte, payload any) error {
	if raw, ok := payload.(*[]byte); ok {
		*raw = body
		return nil
	}
	// encoding/json repairs such text, and hides it.
	if !utf8.Valid(body) {
		return errors.New("not UTF-8")
	}
	// To encoding/json it is any value.
	if string(bytes.TrimSpace(body)) == "null" {
		return errors.New("null")
	}
	return json.Unmarshal(body, payload)
}

// Drop is the error of a handler that gives the message up: it becomes a dead letter with this reason. An error
// that wraps it does the same, with its own text.
func Drop(reason string) error { return &dropped{reason} }

// Dropf is [Drop] with a reason that it formats.
func Dropf(format string, values ...any) error { return Drop(fmt.Sprintf(format, values...)) }

// RetryAfter is the error of a handler that wants the message again after this time, at most 30 days. An error
// that wraps it does the same, and its text goes to the log.
func RetryAfter(delay time.Duration) error { return &later{delay} }

type dropped struct{ reason string }

func (d *dropped) Error() string { return d.reason }

type later struct{ delay time.Duration }

func (l *later) Error() string { return fmt.Sprintf("again in %v", l.delay) }

// AsType finds an error of this type in the chain of err, as errors.AsType of Go 1.26 does.
func AsType[E error](err error) (E, bool) {
	var found E
	ok := errors.As(err, &found)
	return found, ok
}

// HTTPError says why a request has no response.
type HTTPError struct {
	// Kind is denied, dns, connect, tls, timeout, too-large or protocol. After denied, dns, connect and tls the
	// server has seen nothing.
	Kind string
	text string
}

func (e *HTTPError) Error() string {
	if e.text == "" {
		return e.Kind
	}
	return e.Kind + ": " + e.text
}

// Timeout says whether the time was over.
func (e *HTTPError) Timeout() bool { return e.Kind == "timeout" }

// A PublishOption changes a message that [Publish] publishes.
type PublishOption func(*outgoing)

// Header adds a header.
func Header(name, value string) PublishOption {
	return func(o *outgoing) { o.headers = append(o.headers, [2]string{name, value}) }
}

// Delay delivers the message after this time.
func Delay(delay time.Duration) PublishOption {
	return func(o *outgoing) { o.delay = delay }
}

type outgoing struct {
	body    []byte
	headers [][2]string
	delay   time.Duration
}

// Hold is the error of a handler that waits: the message comes again after this time, and the attempt is not charged.
// If the host does not hold the message, it is an ordinary error that says why.
func Hold(after time.Duration) error {
	if err := hold(after); err != nil {
		return err
	}
	return RetryAfter(after)
}

// Reply answers to a producer that waits, together with the ack: both happen, or neither. The answer is the value as JSON;
// if the value is []byte, it is the answer as it is. The last answer counts.
func Reply(value any) error {
	answer, ok := value.([]byte)
	if !ok {
		var err error
		if answer, err = json.Marshal(value); err != nil {
			return err
		}
	}
	return setReply(answer)
}

// Recall is the value that an attempt at this message has remembered last under this name, from JSON; nil if there is
// none. It needs [grant.journal].
func Recall[T any](name string) (*T, error) {
	known, err := recall(name)
	if known == nil || err != nil {
		return nil, err
	}
	value := new(T)
	return value, json.Unmarshal(known, value)
}

// Remember remembers a value, as JSON, for later attempts at this message. It is there when this returns, whatever
// becomes of this attempt. It needs [grant.journal].
func Remember(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return remember(name, text)
}

// Publish publishes a message to a queue that [grant.publish] names. This happens together with the ack: both
// happen, or neither. The body is the value as JSON; if the value is []byte, it is the body as it is.
func Publish(queue string, value any, options ...PublishOption) error {
	var message outgoing
	body, ok := value.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(value); err != nil {
			return err
		}
		message.headers = [][2]string{{"content-type", "application/json"}}
	}
	message.body = body
	for _, option := range options {
		option(&message)
	}
	return publish(queue, message)
}
