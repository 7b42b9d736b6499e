package contract

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// Status is the result of a check.
type Status string

// The results of a check.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped"
)

// Finding is the result of one check with its details.
type Finding struct {
	// Check is the name of the check, What its rule of the contract.
	Check  string `json:"check"`
	What   string `json:"what"`
	Status Status `json:"status"`
	// Problems contains at most five violations, or the reason why the check was skipped.
	Problems []string `json:"problems,omitempty"`
	// Hint describes how to fix the worker, and Docs is the path and the anchor of the rule in the repository; both for a failed check.
	Hint string `json:"hint,omitempty"`
	Docs string `json:"docs,omitempty"`
	// Figure is a measurement as text; often empty.
	Figure string `json:"figure,omitempty"`
	// Took is the duration in seconds.
	Took float64 `json:"took"`
}

// Report contains the results of all checks.
type Report struct {
	Worker  string `json:"worker"`
	Version string `json:"version,omitempty"`
	// Steps lists the checked steps.
	Steps    []string  `json:"steps"`
	Findings []Finding `json:"findings"`
	// Stopped is the reason why the remaining checks did not run; empty if all ran.
	Stopped string `json:"stopped,omitempty"`
	// Instances lists the ids of the instances for which steps were executed.
	Instances []string `json:"instances,omitempty"`
	// Commands and Results count the messages on the bus.
	Commands int `json:"commands"`
	Results  int `json:"results"`
	// Took is the duration in seconds.
	Took float64 `json:"took"`
}

// Count returns the number of checks with a status.
func (r *Report) Count(s Status) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Status == s {
			n++
		}
	}
	return n
}

// Summary returns the report in one line.
func (r *Report) Summary() string {
	return fmt.Sprintf("worker %s %s, steps %s: %d checks passed, %d failed, %d skipped; %d commands, %d results, %.0f s",
		r.Worker, r.Version, strings.Join(r.Steps, ", "), r.Count(Passed), r.Count(Failed), r.Count(Skipped), r.Commands, r.Results, r.Took)
}

// WriteFixes writes the problems in the order in which to fix them, because one problem often causes later ones.
func (r *Report) WriteFixes(w io.Writer) error {
	var b strings.Builder
	n := 0
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Status != Failed {
			continue
		}
		if n++; n == 1 {
			b.WriteString("to fix, in this order:\n")
		}
		fmt.Fprintf(&b, "  %d. %s: %s; see %s\n", n, f.Check, f.Hint, f.Docs)
	}
	if r.Stopped != "" {
		fmt.Fprintf(&b, "%s\n", r.Stopped)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteText writes a finding as text.
func (f *Finding) WriteText(w io.Writer) error {
	mark := map[Status]string{Passed: "passed ", Failed: "FAILED ", Skipped: "skipped"}[f.Status]
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-18s  %s", mark, f.Check, f.What)
	if f.Figure != "" {
		fmt.Fprintf(&b, " (%s)", f.Figure)
	}
	b.WriteByte('\n')
	for _, p := range f.Problems {
		fmt.Fprintf(&b, "             %s\n", strings.ReplaceAll(strings.TrimSpace(p), "\n", "\n               "))
	}
	if f.Status == Failed {
		fmt.Fprintf(&b, "             hint: %s; see %s\n", f.Hint, f.Docs)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	Time    string     `xml:"time,attr"`
	Failure *junitText `xml:"failure"`
	Skipped *junitText `xml:"skipped"`
}

type junitText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report as JUnit XML, which most CI systems show.
func (r *Report) WriteJUnit(w io.Writer) error {
	seconds := func(s float64) string {
		return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
	}
	suite := junitSuite{
		Name: "keb worker check " + r.Worker, Tests: len(r.Findings), Failures: r.Count(Failed), Skipped: r.Count(Skipped),
		Time: fmt.Sprintf("%.3f", r.Took),
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		c := junitCase{Class: r.Worker, Name: f.Check, Time: fmt.Sprintf("%.3f", f.Took)}
		text := strings.Join(f.Problems, "\n")
		switch f.Status {
		case Failed:
			c.Failure = &junitText{Message: f.What + " (" + seconds(f.Took) + ")", Text: text + "\n" + f.Hint + "\n" + f.Docs}
		case Skipped:
			c.Skipped = &junitText{Message: text}
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// List writes the checks.
func List(w io.Writer) error {
	for _, c := range checks() {
		if _, err := fmt.Fprintf(w, "%-18s  the worker %s\n", c.name, c.what); err != nil {
			return err
		}
	}
	return nil
}
