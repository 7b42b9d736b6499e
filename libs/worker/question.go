package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Question is a kind of NATS request that a worker answers besides executing steps, about the current state of
// an external system. Questions and answers are not stored.
type Question struct {
	// Subject is one of the event.Ask... subjects.
	Subject string
	// Answer receives the JSON of the question and returns the value to encode as the answer. The text of its error is sent to the
	// asker, so it must not contain secrets. ctx ends when the asker no longer waits.
	Answer func(ctx context.Context, question []byte) (any, error)
}

func checkQuestions(questions []Question) error {
	var problems []error
	seen := map[string]bool{}
	for _, q := range questions {
		switch {
		case !strings.HasPrefix(q.Subject, "keb.ask."):
			problems = append(problems, fmt.Errorf("question %q: the subject must begin with keb.ask", q.Subject))
		case q.Answer == nil:
			problems = append(problems, fmt.Errorf("question %q: Answer is missing", q.Subject))
		case seen[q.Subject]:
			problems = append(problems, fmt.Errorf("question %q is duplicated", q.Subject))
		}
		seen[q.Subject] = true
	}
	return errors.Join(problems...)
}

// answerQuestions starts to answer questions until stop is called.
func (w *Worker) answerQuestions() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for _, q := range w.cfg.Questions {
		s, err := w.deps.Bus.Answer(q.Subject, ServicePrefix+w.cfg.Name, w.answered(q))
		if err != nil {
			stop()
			return nil, fmt.Errorf("answer %s: %w", q.Subject, err)
		}
		stops = append(stops, s)
	}
	return stop, nil
}
