package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/rehearsal"
)

// maxRepeat bounds the number of equal answers in a script.
const maxRepeat = 100_000

func newProcessRehearse(o *options, overlays *[]string) *cobra.Command {
	var plan string
	var answers []string
	cmd := &cobra.Command{
		Use:   "rehearse OPERATION",
		Short: "Run a process with scripted answers and without waiting",
		Long: `Run the process of an operation type in memory, with the real engine, scripted answers in place of workers, and a clock
that jumps to the next due time. It prints each try of each step with its time, and how the operation ends.

A step that --answer does not name succeeds. --answer STEP=ANSWER[,ANSWER...] gives the answers of its executions in order;
the last one repeats. An answer is one of

  succeed              the step is done
  skip                 there is nothing to do
  poll[:DURATION]      look again later, without an error
  retry[:DURATION]     try again later, because of an error
  fail                 the step fails
  hang                 the worker never answers
  away                 there is no worker

Without a duration, the time in the process file applies. retry*3 is three such answers.`,
		Example: `  keb process rehearse provision --overlays my-overlay --plan aws --answer 'Hello_World=retry*3,succeed'
  keb process rehearse deprovision --answer EDP_Deregistration=hang`,
		Args: exactly("OPERATION"),
		RunE: func(_ *cobra.Command, args []string) error {
			set, err := checkedSet(o, *overlays)
			if err != nil {
				return err
			}
			p := set[event.OperationType(args[0])]
			if p == nil {
				return usageError("there is no process %q; known: %s", args[0], strings.Join(types, ", "))
			}
			script, err := parseScript(p, answers)
			if err != nil {
				return err
			}
			trace, err := rehearsal.Run(p, event.Operation{InstanceID: "rehearsal", Plan: event.Plan{Name: plan}}, script)
			if err != nil {
				return err
			}
			if o.json() {
				return printJSON(o.Out, trace)
			}
			_, err = fmt.Fprint(o.Out, trace)
			return err
		},
	}
	cmd.Flags().StringVar(&plan, "plan", "azure", "plan of the instance, for conditions of steps")
	cmd.Flags().StringArrayVar(&answers, "answer", nil, "answers of a step, as STEP=ANSWER[,ANSWER...]; can be repeated")
	return cmd
}

func parseScript(p *process.Process, flags []string) (rehearsal.Script, error) {
	script := rehearsal.Script{}
	for _, flag := range flags {
		step, list, ok := strings.Cut(flag, "=")
		if !ok {
			return nil, usageError("--answer %q: must be STEP=ANSWER", flag)
		}
		if _, _, known := p.Find(step); !known {
			return nil, usageError("--answer %q: the process %s has no step %q", flag, p.Operation, step)
		}
		if script[step] != nil {
			return nil, usageError("--answer %q: the step is named twice", flag)
		}
		for word := range strings.SplitSeq(list, ",") {
			answer, repeat, err := parseAnswer(word)
			if err != nil {
				return nil, usageError("--answer %q: %s", flag, err)
			}
			for range repeat {
				script[step] = append(script[step], answer)
			}
		}
	}
	return script, nil
}

func parseAnswer(text string) (rehearsal.Answer, int, error) {
	word, times, repeated := strings.Cut(strings.TrimSpace(text), "*")
	repeat := 1
	if repeated {
		n, err := strconv.Atoi(times)
		if err != nil || n < 1 || n > maxRepeat {
			return rehearsal.Answer{}, 0, fmt.Errorf("%q: a number from 1 to %d must follow the *", text, maxRepeat)
		}
		repeat = n
	}
	word, duration, timed := strings.Cut(word, ":")
	var after time.Duration
	if timed {
		d, err := time.ParseDuration(duration)
		if err != nil || d <= 0 || word != "poll" && word != "retry" {
			return rehearsal.Answer{}, 0, fmt.Errorf("%q: only poll and retry take a time, such as retry:30s", text)
		}
		after = d
	}
	switch word {
	case "succeed":
		return rehearsal.Succeed(), repeat, nil
	case "skip":
		return rehearsal.Skip("nothing to do"), repeat, nil
	case "poll":
		return rehearsal.Poll(after), repeat, nil
	case "retry":
		return rehearsal.Retry(after, ""), repeat, nil
	case "fail":
		return rehearsal.Fail("scripted failure"), repeat, nil
	case "hang":
		return rehearsal.Hang(), repeat, nil
	case "away":
		return rehearsal.Away(), repeat, nil
	}
	return rehearsal.Answer{}, 0, fmt.Errorf("%q: must be succeed, skip, poll, retry, fail, hang or away", text)
}
