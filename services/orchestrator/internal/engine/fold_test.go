package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// historyOf returns a history from words: the number of a step and the reason of its error; "-" for success, "!" for a retry by an operator,
// and ">" for the next stage.
func historyOf(words string) []engine.Entry {
	var history []engine.Entry
	stage := 0
	for i, word := range strings.Fields(words) {
		at := epoch.Add(time.Duration(i) * time.Second)
		e := engine.Entry{Cursor: int64(i + 1), Kind: engine.KindStep, Stage: stage, StageAttempt: 1, StepAttempt: i, StartedAt: at, FinishedAt: at}
		switch word {
		case ">":
			stage++
			continue
		case "?":
			e.Kind, e.Message = engine.KindEventReceived, fmt.Sprint("event ", i)
		case "!":
			e.Kind, e.Stage, e.Step = engine.KindRetried, -1, -1
		default:
			e.Step, e.Outcome = int(word[0]-'0'), event.OutcomeSucceeded
			if reason, message, _ := strings.Cut(word[1:], "/"); reason != "-" {
				e.Outcome, e.Error = event.OutcomeRetry, &event.Error{Component: "ext", Reason: reason, Message: message}
			}
		}
		history = append(history, e)
	}
	return history
}

// folding describes folded entries: step, reason, tries, and the cursors of the first and the last try.
func folding(history []engine.Entry) string {
	var words []string
	for i := range history {
		e := &history[i]
		word, tries, first := "!", 1, e.Cursor
		switch e.Kind {
		case engine.KindEventReceived:
			word = "?"
		case engine.KindStep:
			word = fmt.Sprintf("%d-", e.Step)
			if e.Error != nil {
				word = fmt.Sprintf("%d%s", e.Step, e.Error.Reason)
			}
		}
		if e.Folded != nil {
			tries, first = e.Folded.Tries, e.Folded.Cursor
		}
		words = append(words, fmt.Sprintf("%s*%d@%d-%d", word, tries, first, e.Cursor))
	}
	return strings.Join(words, " ")
}

func TestFoldHistory_SameTries_AreOneEntry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, history, want string }{
		{"a step alone", "0a 0a 0a", "0a*3@1-3"},
		{"a repeated stage", "0- 1a 0- 1a 0- 1a", "0-*3@1-5 1a*3@2-6"},
		{"another error", "0a 0a 0b 0a 0a", "0a*2@1-2 0b*1@3-3 0a*2@4-5"},
		{"another message", "0a/x 0a/x 0a/y", "0a*2@1-2 0a*1@3-3"},
		{"another outcome", "0a 0a 0- 1-", "0a*2@1-2 0-*1@3-3 1-*1@4-4"},
		{"a retry by an operator", "0a 0a ! 0a 0a", "0a*2@1-2 !*1@3-3 0a*2@4-5"},
		{"received events", "0a ? 0a ? 0a", "?*1@2-2 ?*1@4-4 0a*3@1-5"},
		{"another stage", "0a 0a > 0a", "0a*2@1-2 0a*1@4-4"},
		{"two steps that fail", "0a 0- 1b 0a 0- 1b", "0a*1@1-1 0-*1@2-2 0a*1@4-4 0-*1@5-5 1b*2@3-6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := folding(engine.FoldHistory(historyOf(c.history))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestFoldHistory_Folded_KeepsFirstAndLastTry(t *testing.T) {
	t.Parallel()
	history := historyOf("0a/x 0a/x 0a/x")
	history[2].WorkerVersion = "2.0"
	got := engine.FoldHistory(history)
	want := history[2]
	want.Folded = &engine.Folded{Tries: 3, Cursor: 1, StageAttempt: 1, StepAttempt: 0, StartedAt: epoch}
	if diff := cmp.Diff([]engine.Entry{want}, got); diff != "" {
		t.Errorf("folded entry (-want +got):\n%s", diff)
	}
}

// randomHistory returns a loop of three steps whose results and texts vary.
func randomHistory(r *rand.Rand, tries int) []engine.Entry {
	var words []string
	for i := range tries {
		switch n := r.IntN(40); {
		case n == 0 && r.IntN(20) == 0:
			words = append(words, "!")
		case n == 1 && r.IntN(20) == 0:
			words = append(words, ">")
		case n < 20:
			words = append(words, fmt.Sprintf("%d-", r.IntN(2)))
		default:
			text := [...]string{"same", fmt.Sprintf("try-%d", i), strings.Repeat("long", r.IntN(400))}[r.IntN(3)]
			words = append(words, fmt.Sprintf("%d%c/%s", r.IntN(3), 'a'+r.IntN(1+r.IntN(26)), text))
		}
	}
	return historyOf(strings.Join(words, " "))
}

func TestFoldHistory_Parts_GiveTheSameResult(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		history := randomHistory(r, 1+r.IntN(400))
		whole := engine.FoldHistory(history)
		var parts []engine.Entry
		for rest := history; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			parts, rest = engine.FoldHistory(append(parts, rest[:n]...)), rest[n:]
		}
		if diff := cmp.Diff(whole, parts); diff != "" {
			t.Fatalf("seed %d (-whole +parts):\n%s", seed, diff)
		}
	}
}

func TestFoldHistory_EveryTry_IsCountedOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		history := randomHistory(r, 1+r.IntN(400))
		tries, cursor := 0, int64(0)
		for _, e := range engine.FoldHistory(history) {
			if e.Cursor <= cursor {
				t.Fatalf("seed %d: cursor %d after %d", seed, e.Cursor, cursor)
			}
			cursor = e.Cursor
			if tries++; e.Folded != nil {
				tries += e.Folded.Tries - 1
			}
		}
		if tries != len(history) {
			t.Fatalf("seed %d: %d tries, want %d", seed, tries, len(history))
		}
	}
}

func TestFoldHistory_EndlessLoop_IsBounded(t *testing.T) {
	t.Parallel()
	reasons := map[string]func(i int) string{
		"the same message":       func(int) string { return "down/no" },
		"another message":        func(i int) string { return fmt.Sprintf("down/try-%d", i) },
		"two reasons in turn":    func(i int) string { return fmt.Sprintf("%c/try-%d", 'a'+i%2, i) },
		"another reason":         func(i int) string { return fmt.Sprintf("r%d/no", i) },
		"messages of 4 kB":       func(i int) string { return fmt.Sprintf("down/%d-%s", i, strings.Repeat("x", 4000)) },
		"reasons and long texts": func(i int) string { return fmt.Sprintf("r%d/%s", i, strings.Repeat("x", 4000)) },
	}
	for name, reason := range reasons {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var history []engine.Entry
			for i := range 8640 { // every 10 s for a day
				history = engine.FoldHistory(append(history, at(historyOf("0- 1- ? 2"+reason(i)), 4*i)...))
			}
			size := 0
			for _, e := range history {
				size += len(e.Message)
				if e.Error != nil {
					size += len(e.Error.Reason) + len(e.Error.Message)
				}
			}
			if len(history) > 60 || size > 50_000 {
				t.Errorf("%d entries with %d bytes of text, want at most 60 with 50,000", len(history), size)
			}
		})
	}
}

// at moves the cursors of entries.
func at(history []engine.Entry, by int) []engine.Entry {
	for i := range history {
		history[i].Cursor += int64(by)
	}
	return history
}
