package docpage

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Metric is what the page says of a metric.
type Metric struct {
	Name, Type, Meaning string
	Labels              []string
}

var quoted = regexp.MustCompile("`([^`]+)`")

// Metrics returns the metrics of the page of the repository in root, in its order. A line that does not fit, and a metric that is named twice,
// are errors.
func Metrics(root string) ([]Metric, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		return nil, err
	}
	return parseMetrics(string(text))
}

// parseMetrics reads the tables of a page: names, type, labels, meaning.
func parseMetrics(page string) ([]Metric, error) {
	var found []Metric
	seen := map[string]bool{}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 4 {
			return nil, fmt.Errorf("%q: %d cells, want names, type, labels and meaning", line, len(cells))
		}
		for _, name := range words(cells[0]) {
			if seen[name] {
				return nil, fmt.Errorf("%s is duplicated", name)
			}
			seen[name] = true
			found = append(found, Metric{Name: name, Type: strings.TrimSpace(cells[1]), Meaning: strings.TrimSpace(cells[3]), Labels: words(cells[2])})
		}
	}
	return found, nil
}

// words are those of a cell between backquotes.
func words(cell string) []string {
	found := []string{}
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		found = append(found, m[1])
	}
	return found
}
