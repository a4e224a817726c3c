#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	node - <<'END'
const fs = require("fs"), assert = require("assert");
fs.writeFileSync("f", "x".repeat(300000));
fs.appendFileSync("f", "end");
assert.strictEqual(fs.readFileSync("f", "utf8").length, 300003);
fs.mkdirSync("d/e", { recursive: true });
fs.copyFileSync("f", "d/e/f");
fs.rmSync("d", { recursive: true });
fs.writeFileSync("ctl/exec", JSON.stringify(["sh", "-c", "wc -c <f; exit 6"]));
assert.strictEqual(fs.readFileSync("ctl/stdout", "utf8").trim(), "300003");
assert.strictEqual(fs.readFileSync("ctl/status", "utf8").split(" ")[0], "6");
const fd = fs.openSync("ctl/exec", "r+");
fs.writeSync(fd, "echo same file\n");
assert.strictEqual(JSON.parse(fs.readFileSync(fd, "utf8")).stdout, "same file\n");
fs.closeSync(fd);
END
}

streams() {
	node - <<'END'
const fs = require("fs"), assert = require("assert");
const w = fs.createWriteStream("s");
for (let i = 0; i < 1000; i++) w.write("line " + i + "\n");
w.end(() => {
  assert.strictEqual(fs.readFileSync("s", "utf8").split("\n").length, 1001);
  fs.promises.writeFile("ctl/exec", "echo promised\n").then(() =>
    assert.strictEqual(fs.readFileSync("ctl/stdout", "utf8"), "promised\n"));
});
END
}

reports() {
	node -e '
const fs = require("fs");
try { fs.writeFileSync("ctl/exec", "no-such-program\n"); process.exit(1); }
catch (e) { process.exit(e.code === "ENOENT" ? 0 : 2); }'
}

begin node
claim "node writes, reads, runs commands" works
claim "node streams and promises" streams
claim "node gets the errno as an exception" reports
end
