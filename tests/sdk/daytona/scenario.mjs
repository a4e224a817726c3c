// The official SDK does on the loopback server what sandboxfs asks of Daytona, and what the
// integration test of its users does: create, clone, run, upload, commit, push, delete.
//
//   node scenario.mjs SDK API KEY REPOSITORY TOKEN
//
// SDK is the directory of the package. Prints TAP.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

const [sdk, apiUrl, apiKey, repository, token] = process.argv.slice(2)
const { Daytona } = createRequire(import.meta.url)(sdk)
const daytona = new Daytona({ apiUrl, apiKey, target: 'us' })
let sandbox, home, workDir
let number = 0

async function claim(text, body) {
  number++
  try {
    await body()
    console.log(`ok ${number} - ${text}`)
  } catch (error) {
    console.log(`not ok ${number} - ${text}`)
    console.log(String(error.stack ?? error).replace(/^/gm, '# '))
  }
}

// As a session: its streams are apart, and come by WebSocket.
async function exec(command) {
  const session = `exec-${Math.random().toString(16).slice(2, 10)}`
  await sandbox.process.createSession(session)
  try {
    const done = await sandbox.process.executeSessionCommand(session, { command, runAsync: true })
    let stdout = '', stderr = ''
    await sandbox.process.getSessionCommandLogs(session, done.cmdId, (s) => { stdout += s },
      (s) => { stderr += s })
    const { exitCode } = await sandbox.process.getSessionCommand(session, done.cmdId)
    return { exitCode, stdout, stderr }
  } finally {
    await sandbox.process.deleteSession(session)
  }
}

await claim('a sandbox is made from a snapshot, and is ephemeral', async () => {
  sandbox = await daytona.create({
    snapshot: 'daytona-small',
    envVars: { GREETING: 'hello' },
    labels: { sdk: 'yes' },
    autoStopInterval: 30,
    autoDeleteInterval: 0,
  })
  assert.equal(sandbox.state, 'started')
  assert.equal(sandbox.autoDeleteInterval, 0)
})

await claim('it is found by its label and by its id', async () => {
  const found = []
  for await (const one of daytona.list({ labels: { sdk: 'yes' } })) found.push(one.id)
  assert.deepEqual(found, [sandbox.id])
  assert.equal((await daytona.get(sandbox.id)).name, sandbox.name)
})

await claim('the default branch is cloned, and a branch made and checked out', async () => {
  home = await sandbox.getUserHomeDir()
  workDir = `${home}/workspace/widgets`
  await sandbox.git.clone(repository, workDir, undefined, undefined, 'git', token)
  await sandbox.git.createBranch(workDir, 'test-harness')
  await sandbox.git.checkoutBranch(workDir, 'test-harness')
  assert.equal((await sandbox.git.status(workDir)).currentBranch, 'test-harness')
  assert.ok((await sandbox.git.branches(workDir)).branches.includes('test-harness'))
})

await claim('a private repository is refused without its token', async () => {
  await assert.rejects(sandbox.git.clone(repository, `${home}/workspace/other`))
})

await claim('a command has streams apart, a directory and a code', async () => {
  const r = await exec(`cd '${workDir}' && sh -c 'echo "$GREETING"; echo err >&2; pwd; exit 3'`)
  assert.deepEqual(r, { exitCode: 3, stdout: `hello\n${workDir}\n`, stderr: 'err\n' })
})

await claim('a simple command has its streams merged, a directory and an environment', async () => {
  const r = await sandbox.process.executeCommand('echo "$X"; echo err >&2; pwd', workDir,
    { X: '<y>' }, 10)
  assert.equal(r.exitCode, 0)
  assert.equal(r.result, `<y>\nerr\n${workDir}\n`)
})

await claim('a command that takes too long is told', async () => {
  await assert.rejects(sandbox.process.executeCommand('sleep 60', undefined, undefined, 1),
    (e) => e.statusCode === 408)
})

await claim('files are uploaded and downloaded', async () => {
  const binary = Buffer.from(Array.from({ length: 1000 }, (_, i) => (i * 7) % 256))
  await sandbox.fs.createFolder(`${workDir}/made here`, '755')
  await sandbox.fs.uploadFiles([
    { source: Buffer.from('integration test'), destination: `${workDir}/made here/test.txt` },
    { source: binary, destination: `${workDir}/binary` },
  ])
  const text = await sandbox.fs.downloadFile(`${workDir}/made here/test.txt`)
  assert.equal(text.toString(), 'integration test')
  assert.ok(binary.equals(await sandbox.fs.downloadFile(`${workDir}/binary`)))
  await assert.rejects(sandbox.fs.downloadFile(`${workDir}/missing`))
})

await claim('what was uploaded is committed and pushed', async () => {
  const { fileStatus } = await sandbox.git.status(workDir)
  assert.deepEqual(fileStatus.map((f) => f.name).sort(), ['"made here/test.txt"', 'binary'])
  await sandbox.git.add(workDir, ['.'])
  const { sha } = await sandbox.git.commit(workDir, 'snapshot-1', 'harness', 'harness@local')
  assert.match(sha, /^[0-9a-f]{40}$/)
  await sandbox.git.push(workDir, 'git', token)
})

await claim('it is deleted, and then it is no more', async () => {
  await daytona.delete(sandbox)
  await assert.rejects(daytona.get(sandbox.id), (e) => e.statusCode === 404)
})

console.log(`1..${number}`)
await daytona[Symbol.asyncDispose]?.()
process.exit(0)
