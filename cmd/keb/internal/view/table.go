package view

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Time formats a time to the second, in UTC and as in the APIs: "2026-11-21T22:00:00Z".
func Time(t time.Time) string { return t.UTC().Format(time.RFC3339) }

const (
	// maxText limits the last column of a table that has no width.
	maxText = 300
	// minText is the width at which the last column of a table fits beside the others.
	minText = 40
	gap     = 2
	indent  = 4
)

// Table renders rows below a head, with a line for each row. The last column has text of any length, which is shortened in its middle: an
// error ends with its cause. In a terminal of a width that leaves no room for the text, it is on a line of its own. A width of 0 means
// that there is no terminal.
func Table(head []string, rows [][]string, width int) string {
	last := len(head) - 1
	widths := make([]int, last)
	room := width
	for i := range widths {
		widths[i] = utf8.RuneCountInString(head[i])
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(OneLine(row[i])))
		}
		room -= widths[i] + gap
	}
	below := width > 0 && room < minText
	switch {
	case width <= 0:
		room = maxText
	case below:
		room = max(minText, width-indent)
	}
	var out strings.Builder
	write := func(cells []string, text string) {
		var line strings.Builder
		for i, w := range widths {
			cell := OneLine(cells[i])
			line.WriteString(cell + strings.Repeat(" ", w-utf8.RuneCountInString(cell)+gap))
		}
		switch {
		case !below:
			line.WriteString(text)
		case text != "":
			text = "\n" + strings.Repeat(" ", indent) + text
		}
		out.WriteString(strings.TrimRight(line.String(), " "))
		if below {
			out.WriteString(text)
		}
		out.WriteString("\n")
	}
	write(head, head[last])
	for _, row := range rows {
		write(row, Middle(OneLine(row[last]), room))
	}
	return out.String()
}

// Middle shortens text to a number of characters. It keeps the end rather than the beginning.
func Middle(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	if width < 2 {
		return string(runes[:max(0, width)])
	}
	start := (width - 1) / 3
	return string(runes[:start]) + "…" + string(runes[len(runes)-(width-1-start):])
}
