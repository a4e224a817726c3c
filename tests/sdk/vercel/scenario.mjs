// The official SDK does on the loopback server what sandboxfs asks of Vercel, and what the executor
// of its users does: create, run, write, read, list, snapshot, stop, resume, delete.
//
//   node scenario.mjs SDK API TOKEN TEAM PROJECT REPOSITORY GIT_TOKEN
//
// SDK is the directory of the package. Prints TAP.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

const [sdk, api, token, teamId, projectId, repository, gitToken] = process.argv.slice(2)
const { Sandbox } = createRequire(import.meta.url)(sdk)
const VERCEL = 'https://vercel.com/api'
let requests = 0
const here = {
  token,
  teamId,
  projectId,
  fetch: (url, options) => {
    assert.ok(String(url).startsWith(VERCEL))
    requests++
    return fetch(api + String(url).slice(VERCEL.length), options)
  },
}
const name = `sdk-${process.pid}`
let sandbox, work
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

// How many requests BODY makes.
async function count(body) {
  const before = requests
  await body()
  return requests - before
}

await claim('create: by name, with a runtime and a timeout, by one request', async () => {
  const n = await count(async () => {
    sandbox = await Sandbox.create({
      ...here,
      name,
      runtime: 'python3.13',
      timeout: 300000,
      ports: [3000],
      resources: { vcpus: 2 },
      env: { GREETING: 'hello' },
      tags: { sdk: 'yes' },
    })
  })
  assert.equal(n, 1)
  assert.equal(sandbox.status, 'running')
  assert.equal(sandbox.persistent, true)
  work = sandbox.cwd
  assert.match(work, /\/vercel\/sandbox$/)
  assert.match(sandbox.domain(3000), /^https:\/\/sb-/)
})

await claim('execute: stdout, stderr and exitCode', async () => {
  const r = await sandbox.runCommand({
    cmd: 'sh',
    args: ['-c', 'echo "$GREETING $X"; echo err >&2; pwd; exit 3'],
    cwd: work,
    env: { X: '<y>' },
  })
  assert.equal(r.exitCode, 3)
  assert.equal(await r.stdout(), `hello <y>\n${work}\n`)
  assert.equal(await r.stderr(), 'err\n')
})

await claim('execute: Python code', async () => {
  const r = await sandbox.runCommand('python3', ['-c', 'print(6 * 7)'])
  assert.equal(await r.stdout(), '42\n')
})

await claim('execute: a program that is not there is 400', async () => {
  await assert.rejects(sandbox.runCommand('no-such-program'),
    (e) => e.response.status === 400 && e.json.error.code === 'executable_not_found')
})

await claim('execute: sudo has another home', async () => {
  const r = await sandbox.runCommand({ cmd: 'sh', args: ['-c', 'echo $HOME'], sudo: true })
  assert.match(await r.stdout(), /\/root\n$/)
})

await claim('execute: timeout', async () => {
  const r = await sandbox.runCommand({ cmd: 'sleep', args: ['60'], timeoutMs: 200 })
  assert.equal(r.exitCode, 137)
})

await claim('a detached command is killed', async () => {
  const c = await sandbox.runCommand({ cmd: 'sleep', args: ['60'], detached: true })
  await c.kill('SIGTERM')
  assert.equal((await c.wait()).exitCode, 143)
})

await claim('its output is followed', async () => {
  const c = await sandbox.runCommand({ cmd: 'sh', args: ['-c', 'echo a; echo b'], detached: true })
  let text = ''
  for await (const line of c.logs()) text += line.data
  assert.equal(text, 'a\nb\n')
})

await claim('writeFile and readFile: any bytes, parents are made, one request', async () => {
  const bytes = Buffer.from(Array.from({ length: 1000 }, (_, i) => (i * 7) % 256))
  const n = await count(() => sandbox.writeFiles([
    { path: `${work}/made/here.txt`, content: Buffer.from('hello') },
    { path: 'bytes', content: bytes },
  ]))
  assert.equal(n, 1)
  assert.ok(bytes.equals(await sandbox.readFileToBuffer({ path: `${work}/bytes` })))
  assert.equal(String(await sandbox.readFileToBuffer({ path: 'made/here.txt' })), 'hello')
})

await claim('readFile: null for what is not there', async () => {
  assert.equal(await sandbox.readFile({ path: `${work}/missing` }), null)
})

await claim('listFiles: by ls -1', async () => {
  const r = await sandbox.runCommand('ls', ['-1', work])
  assert.equal(await r.stdout(), 'bytes\nmade\n')
})

await claim('a directory that is there is refused', async () => {
  await sandbox.mkDir('made/more')
  await assert.rejects(sandbox.mkDir('made/more'), (e) => e.json.error.code === 'file_error')
})

await claim('its file system', async () => {
  const fs = sandbox.fs
  await fs.writeFile(`${work}/f`, 'one')
  await fs.appendFile(`${work}/f`, ' two')
  assert.equal(await fs.readFile(`${work}/f`, 'utf8'), 'one two')
  assert.equal((await fs.stat(`${work}/f`)).size, 7)
  await fs.rename(`${work}/f`, `${work}/g`)
  assert.deepEqual((await fs.readdir(work)).sort(), ['bytes', 'g', 'made'])
})

await claim('it lives longer', async () => {
  const before = sandbox.timeout
  await sandbox.extendTimeout(60000)
  assert.equal(sandbox.currentSession().timeout, before + 60000)
})

await claim('its network is closed', async () => {
  assert.equal(await sandbox.updateNetworkPolicy('deny-all'), 'deny-all')
  await sandbox.update({ networkPolicy: { allow: ['github.com'] } })
  assert.deepEqual(sandbox.networkPolicy, { allow: ['github.com'] })
})

await claim('it is found by name and by tag', async () => {
  assert.equal((await Sandbox.get({ ...here, name })).name, name)
  const found = []
  const list = await Sandbox.list({ ...here, tags: { sdk: 'yes' } })
  for await (const one of list) found.push(one.name)
  assert.deepEqual(found, [name])
})

await claim('cleanup: it stops; the next command resumes it by three requests', async () => {
  await sandbox.stop()
  const n = await count(async () => {
    const r = await sandbox.runCommand('cat', [`${work}/g`])
    assert.equal(await r.stdout(), 'one two')
  })
  assert.equal(n, 3)
})

await claim('a snapshot is taken, and a sandbox made from it', async () => {
  const { snapshotId } = await sandbox.snapshot()
  const other = await Sandbox.create({
    ...here, name: `${name}-s`, source: { type: 'snapshot', snapshotId }, persistent: false,
  })
  const r = await other.runCommand('cat', ['g'])
  assert.equal(await r.stdout(), 'one two')
  await other.delete()
})

await claim('it is forked', async () => {
  const other = await Sandbox.fork({ ...here, sourceSandbox: name, name: `${name}-f` })
  assert.equal(await (await other.runCommand('cat', ['g'])).stdout(), 'one two')
  await other.delete()
})

await claim('a repository is cloned, with a token and without', async () => {
  const source = { type: 'git', url: repository }
  await assert.rejects(Sandbox.create({ ...here, name: `${name}-p`, source }))
  const other = await Sandbox.create({
    ...here, name: `${name}-g`, runtime: 'node24',
    source: { ...source, username: 'x-access-token', password: gitToken },
  })
  const r = await other.runCommand('git', ['log', '--format=%s', '-1'])
  assert.equal(await r.stdout(), 'first\n')
  await other.delete()
})

await claim('one that is not persistent is gone when it stops', async () => {
  const other = await Sandbox.create({ ...here, name: `${name}-e`, persistent: false })
  await other.stop()
  await assert.rejects(other.runCommand('true'), (e) => e.json.error.code === 'snapshot_not_found')
  await other.delete()
})

await claim('it is deleted, and then it is no more', async () => {
  await sandbox.delete()
  await assert.rejects(Sandbox.get({ ...here, name }), (e) => e.response.status === 404)
})

console.log(`1..${number}`)
process.exit(0)
