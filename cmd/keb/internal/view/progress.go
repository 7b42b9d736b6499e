package view

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// barWidth is the number of characters of a bar. With the numbers it fits a terminal of 80 columns.
const barWidth = 24

// Bar shows progress. It is not safe for concurrent use.
type Bar struct {
	out      io.Writer
	terminal func() (columns int, ok bool)
	now      func() time.Time
	started  time.Time
	last     string
	drawn    bool
}

// NewBar returns a bar on out. terminal returns the width of the terminal, or false if out is not a terminal. now is the clock.
func NewBar(out io.Writer, terminal func() (columns int, ok bool), now func() time.Time) *Bar {
	return &Bar{out: out, terminal: terminal, now: now, started: now()}
}

// Set shows that done of total items are done, with a text in one line. A total of 0 means that the total is not known yet.
func (b *Bar) Set(done, total int, text string) error {
	text = OneLine(text)
	columns, ok := b.terminal()
	if !ok {
		line := text
		if done > 0 || total > 0 {
			line = count(done, total) + " " + text
		}
		if line == b.last {
			return nil
		}
		b.last = line
		_, err := fmt.Fprintf(b.out, "%s %s\n", Time(b.now()), line)
		return err
	}
	line := fmt.Sprintf("[%s] %s %s  %s", drawn(done, total), count(done, total), text, b.now().Sub(b.started).Truncate(time.Second))
	if runes := []rune(line); columns > 1 && len(runes) >= columns {
		line = string(runes[:columns-1])
	}
	b.drawn = true
	_, err := fmt.Fprintf(b.out, "\r%s\x1b[K", line)
	return err
}

// Done ends the line of the bar.
func (b *Bar) Done() error {
	if !b.drawn {
		return nil
	}
	b.drawn = false
	_, err := fmt.Fprintln(b.out)
	return err
}

// Clear removes the bar.
func (b *Bar) Clear() error {
	if !b.drawn {
		return nil
	}
	b.drawn = false
	_, err := fmt.Fprint(b.out, "\r\x1b[K")
	return err
}

func count(done, total int) string {
	switch {
	case total <= 0 && done == 0:
		return "-"
	case total <= 0:
		return strconv.Itoa(done)
	}
	return fmt.Sprintf("%d/%d", done, total)
}

func drawn(done, total int) string {
	full := 0
	if total > 0 {
		full = min(barWidth, max(0, barWidth*done/total))
	}
	bar := strings.Repeat("=", full)
	if full < barWidth {
		bar += ">" + strings.Repeat(" ", barWidth-full-1)
	}
	return bar
}
