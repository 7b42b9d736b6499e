package operatorapi

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

func TestParseQuestion_Filters(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"":                                   "",
		"state=pending,in+progress&state=":   "",
		"state=sleeping":                     `state "sleeping": allowed are pending, in progress, succeeded, incomplete, failed, cancelled`,
		"state=incomplete,failed":            "",
		"type=provision&type=create":         `type "create": allowed are provision, `,
		"waiting=no_worker,nobody":           `waiting "nobody": allowed are executing, slow, polling, event, failing, no_answer, no_worker, held, limited, instance_busy, admission`,
		"waiting=retry":                      `waiting "retry": allowed are executing, slow, polling, event, failing, `,
		"plan=" + strings.Repeat("a,b", 100): "",
		"plan=" + strings.Repeat("x", 300):   `plan "xxx`,
		"step=" + strings.Repeat("x", 300):   `step "xxx`,
		"q=ab":                               `q "ab": must have from 3 to 100 characters`,
		"q=" + strings.Repeat("x", 101):      `q "xxx`,
		"q=%20%20%20":                        "",
		"orchestration=7":                    `orchestration "7": must be a UUID`,
		"since=yesterday":                    `since "yesterday": must be a time such as `,
		"until=1969-01-01T00:00:00Z":         `until "1969-01-01T00:00:00Z": must be`,
		"page_size=1001":                     `page_size "1001": must be a number from 1 to 1000`,
		"cursor=x":                           `cursor "x": must be the nextCursor`,
		"cursor=MS4xLjIuMy40LjU&page=2":      "cursor: cannot be combined with page",
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, err = parseQuestion(values)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v, want %q", query, err, want)
		}
	}
	many := url.Values{}
	for i := range maxValues + 1 {
		many.Add("plan", strings.Repeat("x", i+1))
	}
	if _, err := parseQuestion(many); err == nil || !strings.Contains(err.Error(), "plan: more than 50 values") {
		t.Errorf("51 plans: error %v", err)
	}
}

func TestParseQuestion_Cursor_RoundTrips(t *testing.T) {
	t.Parallel()
	at := &store.Position{
		CreatedAt: time.Date(2026, 11, 21, 8, 0, 0, 123456000, time.UTC), Arrived: 77, Operation: "019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11",
	}
	q := &question{total: 12, capped: true}
	again, err := parseQuestion(url.Values{"cursor": {q.cursor(at)}})
	require.NoError(t, err)
	if diff := cmp.Diff(at, again.After); diff != "" || again.total != 12 || !again.capped {
		t.Errorf("total %d, capped %t, position (-want +got):\n%s", again.total, again.capped, diff)
	}
	if q.cursor(nil) != "" {
		t.Error("the last page has a cursor")
	}
}

func FuzzParseQuestion(f *testing.F) {
	at := &store.Position{CreatedAt: time.Now(), Arrived: 77, Operation: "019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11"}
	for _, seed := range []string{
		"state=pending,failed&type=provision&plan=azure&q=abc&page=2&page_size=10", "waiting=failing&step=a&worker=b&since=2026-11-21T08:00:00Z",
		"cursor=" + new(question).cursor(at), "orchestration=019aa7a0-5e0a-7c1c-9d43-0c5f0a4d3b11&until=2026-11-21T08:00:00%2B01:00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		q, err := parseQuestion(values)
		if err != nil {
			return
		}
		if q.Limit < 1 || q.Limit > maxPageSize || q.Offset < 0 || len(q.Query) > maxQuery || len(q.Plans) > maxValues {
			t.Errorf("%q is parsed as %+v", query, q)
		}
		if q.After == nil {
			return
		}
		again, err := parseQuestion(url.Values{"cursor": {q.cursor(q.After)}})
		if err != nil || !again.After.CreatedAt.Equal(q.After.CreatedAt) || again.After.Arrived != q.After.Arrived {
			t.Errorf("the cursor of %+v is parsed as %+v, %v", q.After, again, err)
		}
	})
}

func TestParseThroughput_Limits(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"": "", "minutes=1440&bucket=1h": "", "minutes=0": `minutes "0"`, "minutes=1441": `minutes "1441": must be a number from 1 to 1440`,
		"bucket=30s": `bucket "30s": must be whole minutes`, "bucket=90s": `bucket "90s"`, "bucket=25h": `bucket "25h"`, "bucket=-1m": `bucket "-1m"`, "type=x": `type "x"`,
	} {
		values, _ := url.ParseQuery(query)
		_, _, _, err := parseThroughput(values)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", query, err, want)
		}
	}
}

func FuzzParseThroughput(f *testing.F) {
	f.Add("minutes=60&bucket=5m&type=provision")
	f.Add("bucket=1h0m0s")
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		minutes, bucket, _, err := parseThroughput(values)
		if err == nil && (minutes < 1 || minutes > maxMinutes || bucket < time.Minute || bucket%time.Minute != 0) {
			t.Errorf("%q is parsed as %d, %s", query, minutes, bucket)
		}
		if _, err := parseStuck(values); err != nil && err.Error() == "" {
			t.Error("an error without text")
		}
	})
}

func FuzzParseResumption(f *testing.F) {
	f.Add("1795248000000.10:20:11,12")
	f.Add("1.1:1:/7")
	f.Add("/")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := parseResumption(text); err == nil && (r == nil) != (text == "") || r != nil && r.cursor < -1 {
			t.Errorf("%q is parsed as %+v", text, r)
		}
	})
}

// A batch acts on more operations if a part of its filter has no effect.
func TestParseFilter_PartHasNoEffect_IsRejected(t *testing.T) {
	t.Parallel()
	for filter, want := range map[string]string{
		"":                          "must not be empty",
		"plan=,":                    "plan",
		"state=failed&plan=%2C+%2C": "plan",
		"filter=state%3Dfailed&filter=plan%3Dazure": "filter: must not be repeated",
		"region=a&region=b":                         "region: must not be repeated",
		"stage=a":                                   "unknown parameter",
	} {
		if _, _, err := parseFilter(filter); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", filter, err, want)
		}
	}
	for _, filter := range []string{"plan=azure,", "plan=azure&plan=aws", "plan=&state=failed"} {
		if _, _, err := parseFilter(filter); err != nil {
			t.Errorf("%s: %v", filter, err)
		}
	}
}
