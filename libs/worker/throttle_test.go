package worker

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
)

func TestProgress_ManyReports_SendsNewestEachSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		p := &progress{every: time.Second, send: func(n event.ProgressNotice) { sent = append(sent, n.Message) }}
		for i := range 25 { // every 100 ms: the first at once, then one at 1 s, 2 s and 3 s
			p.report(event.ProgressNotice{Message: strconv.Itoa(i)})
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		p.report(event.ProgressNotice{Message: "later"})
		p.report(event.ProgressNotice{Message: "never"})
		p.close()
		<-time.After(time.Minute)
		synctest.Wait()
		if len(sent) != 5 || sent[0] != "0" || cmp.Diff([]string{"24", "later"}, sent[3:]) != "" {
			t.Errorf("sent %q", sent)
		}
	})
}
