package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vestibule/internal/node"
)

// TestAnInterruptAnswersNo: Ctrl-C at a question ends the command, and nothing is changed.
func TestAnInterruptAnswersNo(t *testing.T) {
	nobody, typed := io.Pipe()
	defer typed.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	var said bytes.Buffer
	c := &client{ctx: ctx, in: nobody, err: &said}
	interrupt()
	if err := c.ask("Delete?", "nothing was deleted"); err == nil || err.Error() != "nothing was deleted" {
		t.Errorf("%v", err)
	}
	for answer, want := range map[string]bool{
		"y\n": true, "Yes\n": true, "yes": true, "\n": false, "no\n": false, "": false,
	} {
		c := &client{ctx: t.Context(), in: strings.NewReader(answer), err: &said}
		if err := c.ask("Delete?", "no"); (err == nil) != want {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

// TestWatchOutlastsTheAPI: --watch goes on while nobody answers, unless it began so, and Ctrl-C is no error.
func TestWatchOutlastsTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		var out, said bytes.Buffer
		c := &client{ctx: ctx, out: &out, err: &said}
		down := &unreachableError{err: errors.New("no leader")}
		times := 0
		show := func() error {
			switch times++; times {
			case 2:
				return down
			case 4:
				interrupt()
				return c.unanswered(context.Canceled, false)
			}
			return nil
		}
		begun := time.Now()
		if err := c.again(true, show); err != nil || times != 4 || time.Since(begun) != 6*time.Second {
			t.Errorf("%v after %d times and %v", err, times, time.Since(begun))
		}
		if !strings.Contains(said.String(), "the API cannot be reached: no leader") {
			t.Errorf("said %q", said.String())
		}
		c.ctx = t.Context()
		for _, watch := range []bool{true, false} {
			if err := c.again(watch, func() error { return down }); !errors.Is(err, down) {
				t.Errorf("at first nobody answers, watch %v: %v", watch, err)
			}
		}
		refused := errors.New("refused")
		times = 0
		if err := c.again(true, func() error {
			if times++; times > 1 {
				return refused
			}
			return nil
		}); !errors.Is(err, refused) {
			t.Errorf("a refusal: %v", err)
		}
	})
}

// TestAChangeWithoutAnAnswer: whoever interrupts a change, or waits in vain, reads that it may have been made; a read
// needs no such word, nor a change that was not sent.
func TestAChangeWithoutAnAnswer(t *testing.T) {
	const unknown = "whether the change was made is not known: see vestibule audit list"
	arrived, end := make(chan string), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Method
		<-end
	}))
	defer api.Close()
	defer close(end)
	t.Setenv("VESTIBULE_TOKEN", "t")
	for _, c := range []struct {
		args      string
		interrupt bool
		code      int
		says      string
		unknown   bool
	}{
		{"fleet add lima", true, node.ExitError, "interrupted", true},
		{"fleet add lima --timeout 50ms", false, exitUnreachable, "the API cannot be reached", true},
		{"rooms list", true, node.ExitError, "interrupted", false},
		{"rooms list --timeout 50ms", false, exitUnreachable, "the API cannot be reached", false},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		go func() {
			<-arrived
			if c.interrupt {
				interrupt()
			}
		}()
		code, out := told(ctx, append(strings.Fields(c.args), "--server="+api.URL)...)
		if code != c.code || !strings.Contains(out, c.says) || strings.Contains(out, unknown) != c.unknown ||
			strings.Count(out, "interrupted") > 1 {
			t.Errorf("%s: exit %d, %s", c.args, code, out)
		}
		interrupt()
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	code, out := told(ctx, "fleet", "list", "--nats-url", "nats://127.0.0.1:1")
	if code != node.ExitError || !strings.Contains(out, "vestibule fleet list: interrupted: ") {
		t.Errorf("an interrupted look into NATS: exit %d, %s", code, out)
	}
	code, out = told(t.Context(), "fleet", "add", "lima", "--server=http://127.0.0.1:1")
	if code != exitUnreachable || strings.Contains(out, unknown) {
		t.Errorf("a change that was not sent: exit %d, %s", code, out)
	}
}
