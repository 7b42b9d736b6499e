package service_test

import (
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/service"
)

func TestCommandIsAloneOrNot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args  []string
		check bool
		want  string
		says  string
	}{
		{},
		{check: true},
		{args: []string{"migrate"}, want: "migrate"},
		{args: []string{"migrate"}, check: true, says: `argument "migrate": with -check-config nothing else is done`},
		{args: []string{"migrate", "-check-config"}, says: `argument "-check-config": migrate takes none; flags stand before it`},
	} {
		got, err := service.Command(tt.args, tt.check)
		if got != tt.want || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v, check %t: %q, %v", tt.args, tt.check, got, err)
		}
	}
}
