#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	sqlite3 db 'create table t(a); insert into t values(1),(2);'
	same 3 "$(sqlite3 db 'select sum(a) from t')"
	i=0
	while [ $i -lt 10 ]; do
		sqlite3 -cmd '.timeout 20000' db "insert into t values($i)" &
		i=$((i + 1))
	done
	wait
	same 48 "$(sqlite3 db 'select sum(a) from t')"
	echo 'sqlite3 db "insert into t values(100)"' >ctl/exec
	same 0 "$(cut -d' ' -f1 ctl/status)"
	same 148 "$(sqlite3 db 'select sum(a) from t')"
	same ok "$(sqlite3 db 'pragma integrity_check')"
}

reports() {
	refuse sqlite3 db 'select * from missing'
	refuse sqlite3 missing/db 'create table t(a)'
}

begin sqlite3
claim "sqlite3 from several processes, and inside" works
claim "sqlite3 reports what failed" reports
end
