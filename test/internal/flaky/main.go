// Command flaky copies the output of gotestsum from standard input, and prints what is flaky above its summary. The argument is the file that
// gotestsum has written with --jsonfile. It fails when a failure was hidden by running tests again.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "flaky:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("want one argument, the file of gotestsum --jsonfile")
	}
	summary, err := Copy(os.Stdout, os.Stdin)
	if err != nil {
		return err
	}
	report, err := read(os.Args[1])
	if err == nil {
		err = report.Print(os.Stdout)
	}
	if len(report.Hidden) > 0 {
		err = fmt.Errorf("failures outside of tests: %d", len(report.Hidden))
	}
	// The last lines are those of the test runner in any case.
	if err != nil {
		fmt.Fprintln(os.Stdout, "flaky:", err)
	}
	_, _ = io.WriteString(os.Stdout, "\n"+summary) // nowhere else to say it
	if err != nil {
		os.Exit(1)
	}
	return nil
}

// read reads the events. There are none when the runner could not begin.
func read(path string) (Report, error) {
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return Report{}, nil
	}
	if err != nil {
		return Report{}, err
	}
	report, err := Read(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	return report, err
}
