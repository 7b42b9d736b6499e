package filter

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
)

// write returns an expression with a pair of parentheses for each combination.
func write(e *Expression) string {
	join := func(parts []*Expression, by string) string {
		texts := make([]string, len(parts))
		for i, part := range parts {
			texts[i] = write(part)
		}
		return "(" + strings.Join(texts, by) + ")"
	}
	switch {
	case e.Not != nil:
		return "NOT " + write(e.Not)
	case len(e.All) > 0:
		return join(e.All, " AND ")
	case len(e.Any) > 0:
		return join(e.Any, " OR ")
	case e.Comparison.Operator == Present:
		return e.Comparison.Field.Name + " :*"
	}
	return fmt.Sprintf("%s %s %v", e.Comparison.Field.Name, e.Comparison.Operator, e.Comparison.Value)
}

func TestParse_Filter_IsRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"state = failed":                            "state = failed",
		"state=in_progress":                         "state = in progress",
		`state = "in progress"`:                     "state = in progress",
		"state != canceled":                         "NOT state = cancelled",
		"plan:(azure OR aws)":                       "(plan : azure OR plan : aws)",
		"plan != (azure OR aws)":                    "NOT (plan = azure OR plan = aws)",
		"state = failed plan = azure":               "(state = failed AND plan = azure)",
		"plan = a OR plan = b AND plan = c":         "((plan = a OR plan = b) AND plan = c)",
		"plan = a OR (plan = b AND plan = c)":       "(plan = a OR (plan = b AND plan = c))",
		"NOT plan = a OR -plan = b":                 "(NOT plan = a OR NOT plan = b)",
		"NOT (plan = a AND plan = b)":               "NOT (plan = a AND plan = b)",
		"region = eu-central-1":                     "region = eu-central-1",
		"plan = ANDROID AND plan = ORANGE":          "(plan = ANDROID AND plan = ORANGE)",
		`plan = "AND" AND plan = '('`:               "(plan = AND AND plan = ()",
		`error.message:"it's \"off\""`:              `error.message : it's "off"`,
		"created >= 2026-11-21T08:00:00+01:00":      "created >= 2026-11-21 07:00:00 +0000 UTC",
		"created < 2026-11-21":                      "created < 2026-11-21 00:00:00 +0000 UTC",
		"finished > 24h":                            "finished > 24h0m0s",
		"finished:*":                                "finished :*",
		"hold:*":                                    "hold :*",
		"duration > 1h30m":                          "duration > 1h30m0s",
		"attempts >= 3":                             "attempts >= 3",
		"held = true incomplete:false":              "(held = true AND incomplete = false)",
		"id = 019AA7A0-5e0a-7c1c-9d43-0c5f0a4d3b11": "id = 019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11",
		"step:EDP_Registration":                     "step = EDP_Registration",
		"waiting = no_worker":                       "waiting = no_worker",
		"\tplan\n= a ":                              "plan = a",
		"runtime = ümlaut*":                         "runtime = ümlaut*",
	} {
		e, err := Parse(text, operator.FilterFields())
		require.NoError(t, err, text)
		if got := write(e); got != want {
			t.Errorf("%s: read as %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "  \n"} {
		if e, err := Parse(text, nil); e != nil || err != nil {
			t.Errorf("%q: %v, %v", text, e, err)
		}
	}
}

func TestParse_BadFilter_NamesPlaceAndRemedy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"state = failed AND plann = azure": `at character 20: unknown field "plann": allowed are attempts, created, duration, error, error.component, `,
		"state = sleeping":                 `at character 9: state "sleeping": allowed are pending, in_progress, succeeded, incomplete, failed, cancelled`,
		"state > failed":                   "at character 1: state cannot be compared with >: allowed are =, !=, :",
		"duration = 20m":                   "at character 1: duration cannot be compared with =: allowed are <, <=, >, >=",
		"duration > long":                  `at character 12: duration "long": must be a duration such as 20m`,
		"created > yesterday":              `at character 11: created "yesterday": must be a time such as 2026-11-21T08:00:00Z or 2026-11-21, or a duration before now such as 2h`,
		"created:2h":                       `at character 9: created "2h": after : must be *`,
		"hold = 7":                         `at character 8: hold "7": must be a UUID`,
		"held = yes":                       `at character 8: held "yes": must be true or false`,
		"attempts > many":                  `at character 12: attempts "many": must be a number from 0 to 1000000`,
		"attempts = 1000001":               "must be a number from 0 to 1000000",
		`plan = ""`:                        `at character 8: plan "": must not be empty`,
		"state:*":                          `at character 7: state "*": allowed are pending`,
		"azure":                            "at character 6: the filter is not complete: compare a field with a value, such as state = failed",
		"plan =":                           "at character 7: the filter is not complete",
		"plan = azure AND":                 "at character 17: the filter is not complete",
		"(plan = azure":                    "at character 14: the filter is not complete",
		"plan = azure)":                    `at character 13: ")" is not expected`,
		"plan = (azure AND aws)":           `at character 15: "AND aws)" is not expected`,
		"ü = a ! b":                        "at character 7: \"! b\" is not expected",
		`plan = "azure`:                    `at character 8: "\"azure" is not expected`,
		"= azure":                          `at character 1: "= azure" is not expected`,
		"()":                               `at character 2: ")" is not expected`,
		strings.Repeat("x", MaxLength+1):   "must have at most 2000 characters, not 2001",
		strings.Repeat("(", 11) + "plan = a" + strings.Repeat(")", 11): "parentheses must be nested at most 10 deep",
		strings.Repeat("(", 1000):                                      "must have at most 100 parentheses",
		"plan = (" + strings.Repeat("a OR ", 100) + "a)":               "at character 1: must have at most 100 values",
	} {
		_, err := Parse(text, operator.FilterFields())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v, want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"state = failed AND plan:(azure OR aws) AND NOT region = eu-*", `error.message:"time out" OR (duration > 20m -held = true)`,
		"created >= 2026-11-21T08:00:00Z finished:* id = 019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11", "attempts != 3", "((", `"`, "plan = '\\x'",
	} {
		f.Add(seed)
	}
	fields := operator.FilterFields()
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text, fields)
		if err != nil {
			if len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\n\x00") || !utf8.ValidString(err.Error()) {
				t.Errorf("%q: the error is %q", text, err)
			}
			return
		}
		values := 0
		for c := range e.Comparisons() {
			values++
			switch v := c.Value.(type) {
			case string, bool:
			case int:
				if v < 0 || v > maxNumber {
					t.Errorf("%q: number %d", text, v)
				}
			case time.Duration:
				if v < 0 || v > maxDuration {
					t.Errorf("%q: duration %s", text, v)
				}
			case time.Time:
				if v.Year() < 1970 || v.Year() > 9999 {
					t.Errorf("%q: time %s", text, v)
				}
			case nil:
				if c.Operator != Present {
					t.Errorf("%q: %s %s has no value", text, c.Field.Name, c.Operator)
				}
			default:
				t.Errorf("%q: %T", text, v)
			}
		}
		if values > maxValues || (values == 0) != (e == nil) {
			t.Errorf("%q: %d values, %v", text, values, e)
		}
	})
}

func TestComparisons_EarlyStop_EndsTheWalk(t *testing.T) {
	t.Parallel()
	e, err := Parse("(plan = a OR NOT plan = b) AND plan = c", operator.FilterFields())
	require.NoError(t, err)
	var got []string
	for c := range e.Comparisons() {
		if got = append(got, c.Text()); c.Text() == "b" {
			break
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
		t.Error(diff)
	}
}
