package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Question is a kind of NATS request that a worker answers besides executing steps: something that others need to know
// from an external system at once. It is stored nowhere.
type Question struct {
	// Subject is one of the event.Ask... subjects.
	Subject string
	// Answer gets the JSON of the question and returns what is encoded as the answer. The text of its error goes to the
	// asker, so it holds no secret. ctx ends when the asker no longer waits.
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

// answerQuestions begins to answer; stop ends it.
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
