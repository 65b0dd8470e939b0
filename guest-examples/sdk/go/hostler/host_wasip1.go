package hostler

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
	_ "time/tzdata" // There are no files: the time zones are in the component.
	_ "unsafe"      // for go:linkname

	wit "go.bytecodealliance.org/pkg/wit/types"

	exports "hostler/bindings/export_hostler_handler_message_handler"
	"hostler/bindings/hostler_handler_delivery"
	"hostler/bindings/hostler_handler_flow"
	"hostler/bindings/hostler_handler_http"
	"hostler/bindings/hostler_handler_journal"
	"hostler/bindings/hostler_handler_publisher"
	"hostler/bindings/hostler_handler_reply"
	"hostler/bindings/hostler_handler_secrets"
	types "hostler/bindings/hostler_handler_types"
	"hostler/bindings/wasi_config_store"
	_ "hostler/bindings/wit_exports"
)

func init() {
	// The garbage collector would read the clock while the host passes a message to the instance. No call out
	// is allowed at that time. So the collector is off; the host replaces an instance that has grown.
	debug.SetGCPercent(-1)
	// The host's log has the time.
	log.SetFlags(0)
	exports.Handler = answer
}

// What Handle was called with.
var (
	handler any
	handled func(context.Context, Message) error
)

func serve(handle any, with func(context.Context, Message) error) {
	if handled != nil {
		panic("hostler.Handle was called before")
	}
	handler, handled = handle, with
}

// A component is a library to Go, so Go does not call the program's main.
//
//go:linkname mainMain main.main
func mainMain()

// answer handles one message.
func answer(in types.Message) types.Outcome {
	if handled == nil {
		mainMain()
	}
	if handled == nil {
		panic("main does not call hostler.Handle")
	}
	before := runtime.NumGoroutine()
	end := time.Now().Add(time.Duration(hostler_handler_delivery.DeadlineMs()) * time.Millisecond)
	ctx, cancel := context.WithCancel(attempt{context.Background(), end})
	err := handled(ctx, message(in))
	answered, failed := outcome(err)
	if failed {
		cancel()
	}
	left := finish(before, end, cancel)
	switch {
	case len(left) > 0 && err == nil:
		giveUp(unfinished(len(left)), left[0].text)
	case len(left) > 0 && failed:
		// As a fault, so that the goroutines end with the instance.
		text, name, file, line := failure(err)
		giveUp(text, fmt.Sprintf("goroutine 1 [running]:\n%s(...)\n\t%s:%d", name, file, line))
	case failed:
		text, name, file, line := failure(err)
		place := fmt.Sprintf(", at %s (%s:%d)", path.Base(name), path.Base(file), line)
		// The host keeps the beginning of the last line: the place must be in it.
		if room := max(lineMax-len(place), 0); len(text) > room {
			fmt.Fprintln(os.Stderr, text)
			text = strings.ToValidUTF8(text[:room], "")
		}
		fmt.Fprintln(os.Stderr, text+place)
	}
	return answered
}

// attempt is a context with a deadline, and without a timer: hostler ends an attempt itself. To a timer, a
// goroutine that waits for nothing else would look as if it had something to do.
type attempt struct {
	context.Context
	end time.Time
}

func (a attempt) Deadline() (time.Time, bool) { return a.end, true }

func message(in types.Message) Message {
	headers := make(map[string]string, len(in.Headers))
	for _, header := range in.Headers {
		headers[header.F0] = header.F1
	}
	out := Message{
		ID:          in.Id,
		Queue:       in.Queue,
		Body:        in.Body,
		Headers:     headers,
		Attempt:     int(in.Attempt),
		MaxAttempts: int(in.MaxAttempts),
	}
	if in.EnqueuedMs != 0 {
		out.Enqueued = time.UnixMilli(int64(in.EnqueuedMs))
	}
	return out
}

// outcome is what becomes of a message; true if the handler has failed.
func outcome(err error) (types.Outcome, bool) {
	var drop *dropped
	var again *later
	switch {
	case err == nil:
		return types.MakeOutcomeAck(), false
	case errors.As(err, &drop):
		return types.MakeOutcomeDrop(wit.Some(err.Error())), false
	case errors.As(err, &again):
		fmt.Fprintln(os.Stderr, err)
		return types.MakeOutcomeNackRequeue(wit.Some(uint64(max(again.delay.Milliseconds(), 0)))), false
	default:
		return types.MakeOutcomeNackRequeue(wit.None[uint64]()), true
	}
}

// failure is an error with its type, and the handler. The host makes a cause of them, which it reads on stderr.
func failure(err error) (text, name, file string, line int) {
	text = strings.ReplaceAll(err.Error(), "\n", "; ")
	if name := typeOf(err); name != "" {
		text = name + ": " + text
	}
	function := runtime.FuncForPC(reflect.ValueOf(handler).Pointer())
	file, line = function.FileLine(function.Entry())
	return text, function.Name(), file, line
}

// lineMax is the number of bytes of the last line that the host keeps.
const lineMax = 256

// giveUp ends the attempt as a panic does.
func giveUp(text, frames string) {
	fmt.Fprintf(os.Stderr, "panic: %s\n\n%s\n", text, frames)
	trap()
}

// trap is one instruction, in trap_wasip1.s. A panic of Go would say more than the error.
func trap()

// typeOf is the type of an error: of what it wraps, if it has none of its own.
func typeOf(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		name := fmt.Sprintf("%T", err)
		if !strings.HasPrefix(name, "*fmt.") && !strings.HasPrefix(name, "*errors.") {
			return name
		}
	}
	return ""
}

func publish(queue string, message outgoing) error {
	out := hostler_handler_publisher.Outgoing{Body: message.body, DelayMs: wit.None[uint64]()}
	for _, header := range message.headers {
		out.Headers = append(out.Headers, wit.Tuple2[string, string]{F0: header[0], F1: header[1]})
	}
	if message.delay > 0 {
		out.DelayMs = wit.Some(uint64(message.delay.Milliseconds()))
	}
	if result := hostler_handler_publisher.Publish(queue, out); result.IsErr() {
		return errors.New(result.Err())
	}
	return nil
}

// Secret reads a secret that [grant.secret] exposes. It can change while the handler runs.
func Secret(name string) (string, error) {
	result := hostler_handler_secrets.Get(name)
	if result.IsErr() {
		return "", errors.New(result.Err())
	}
	return result.Ok(), nil
}

func hold(after time.Duration) error {
	if result := hostler_handler_flow.Hold(uint64(max(after.Milliseconds(), 0))); result.IsErr() {
		return errors.New(result.Err())
	}
	return nil
}

func setReply(value []byte) error {
	if result := hostler_handler_reply.Set(value); result.IsErr() {
		return errors.New(result.Err())
	}
	return nil
}

func recall(name string) ([]byte, error) {
	result := hostler_handler_journal.Recall(name)
	if result.IsErr() {
		return nil, errors.New(result.Err())
	}
	return result.Ok().SomeOr(nil), nil
}

func remember(name string, value []byte) error {
	if result := hostler_handler_journal.Remember(name, value); result.IsErr() {
		return errors.New(result.Err())
	}
	return nil
}

// Config reads a value of [grant.config]; empty if there is none.
func Config(name string) string {
	if result := wasi_config_store.Get(name); result.IsOk() && result.Ok().IsSome() {
		return result.Ok().Some()
	}
	return ""
}

// fetch sends the requests of net/http: see _std/roundtrip.go.
//
//go:linkname fetch
func fetch(method, url string, headers [][2]string, body []byte, timeout time.Duration) (int, [][2]string, []byte, error) {
	request := hostler_handler_http.Request{
		Method:    method,
		Url:       url,
		Body:      wit.None[[]byte](),
		TimeoutMs: wit.None[uint32](),
	}
	for _, header := range headers {
		request.Headers = append(request.Headers, wit.Tuple2[string, []byte]{F0: header[0], F1: []byte(header[1])})
	}
	if len(body) > 0 {
		request.Body = wit.Some(body)
	}
	if timeout > 0 {
		request.TimeoutMs = wit.Some(uint32(timeout.Milliseconds()))
	}
	result := hostler_handler_http.Fetch(request)
	if result.IsErr() {
		return 0, nil, nil, httpError(result.Err())
	}
	response := result.Ok()
	answered := make([][2]string, 0, len(response.Headers))
	for _, header := range response.Headers {
		answered = append(answered, [2]string{header.F0, string(header.F1)})
	}
	return int(response.Status), answered, response.Body, nil
}

func httpError(err hostler_handler_http.Error) error {
	switch err.Tag() {
	case hostler_handler_http.ErrorDenied:
		return &HTTPError{"denied", err.Denied()}
	case hostler_handler_http.ErrorDns:
		return &HTTPError{"dns", err.Dns()}
	case hostler_handler_http.ErrorConnect:
		return &HTTPError{"connect", err.Connect()}
	case hostler_handler_http.ErrorTls:
		return &HTTPError{"tls", err.Tls()}
	case hostler_handler_http.ErrorTimeout:
		return &HTTPError{"timeout", ""}
	case hostler_handler_http.ErrorTooLarge:
		return &HTTPError{"too-large", fmt.Sprintf("more than %d bytes", err.TooLarge())}
	default:
		return &HTTPError{"protocol", err.Protocol()}
	}
}
