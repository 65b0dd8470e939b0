package hostler

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "unsafe" // for go:linkname
)

// margin is the time between the fault of an attempt whose goroutines do not end, and the end of the attempt.
const margin = 100 * time.Millisecond

// turns is how often the goroutines get the thread before they are looked at.
const turns = 64

// The parts of goroutines of the standard library that carry no work: they end with what they watch.
var watchers = []string{"created by context.(*cancelCtx).propagateCancel", "created by net/http.setRequestCancel"}

// finish runs the goroutines that the handler has started to their end. Nothing would run them after its
// answer. If they wait for something that does not come, the context of the attempt ends. Those that still wait
// are left.
func finish(before int, end time.Time, cancel func()) []goroutine {
	defer cancel()
	cancelled := false
	for {
		for range turns {
			if runtime.NumGoroutine() <= before {
				return nil
			}
			runtime.Gosched()
		}
		left := newest(before)
		if len(left) == 0 {
			return nil
		}
		isWaiting := !slices.ContainsFunc(left, goroutine.isRunning)
		until := time.Until(end) - margin
		wake := time.Duration(timeSleepUntil() - nanotime())
		switch {
		case until <= 0 || isWaiting && cancelled && wake > until:
			return left
		case isWaiting && wake > until:
			cancel()
			cancelled = true
		case isWaiting:
			time.Sleep(max(wake, time.Millisecond))
		}
	}
}

func unfinished(n int) string {
	if n == 1 {
		return "the handler returned while 1 goroutine is unfinished"
	}
	return fmt.Sprintf("the handler returned while %d goroutines are unfinished", n)
}

type goroutine struct {
	id   int
	text string
}

func (g goroutine) isRunning() bool {
	head, _, _ := strings.Cut(g.text, "\n")
	return strings.Contains(head, "[runnable") || strings.Contains(head, "[running")
}

// newest are the goroutines, beyond this number of older ones: those that the handler has started.
func newest(older int) []goroutine {
	text := make([]byte, 1<<20)
	text = text[:runtime.Stack(text, true)]
	var found []goroutine
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		word, _, _ := strings.Cut(strings.TrimPrefix(part, "goroutine "), " ")
		if id, err := strconv.Atoi(word); err == nil {
			found = append(found, goroutine{id, part})
		}
	}
	slices.SortFunc(found, func(a, b goroutine) int { return cmp.Compare(a.id, b.id) })
	found = found[min(older, len(found)):]
	return slices.DeleteFunc(found, func(g goroutine) bool {
		return slices.ContainsFunc(watchers, func(made string) bool { return strings.Contains(g.text, made) })
	})
}

// From runtime/time.go, the same in Go 1.25 and 1.26: when the next timer fires.
//
//go:linkname timeSleepUntil runtime.timeSleepUntil
func timeSleepUntil() int64

//go:linkname nanotime runtime.nanotime
func nanotime() int64
