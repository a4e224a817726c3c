// Writes a request, sees a refusal, reads the result; in the directory of a sandbox.
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;

fn refused<T>(result: io::Result<T>, want: i32) {
    assert_eq!(result.err().expect("was not refused").raw_os_error(), Some(want));
}

fn files() -> io::Result<()> {
    fs::write("f", "by rust")?;
    assert_eq!(fs::read_to_string("f")?, "by rust");
    fs::create_dir_all("d/e")?;
    fs::rename("f", "d/e/f")?;
    fs::copy("d/e/f", "d/g")?;
    assert_eq!(fs::read_dir("d")?.count(), 2);
    fs::remove_dir_all("d")
}

fn requests() -> io::Result<()> {
    fs::write("ctl/exec", "sh -c 'echo from rust; exit 5'\n")?;
    assert_eq!(fs::read_to_string("ctl/stdout")?, "from rust\n");
    assert!(fs::read_to_string("ctl/status")?.starts_with("5 exited"));
    fs::write("ctl/exec.tmp", "echo renamed")?;
    fs::rename("ctl/exec.tmp", "ctl/exec")?;
    assert_eq!(fs::read_to_string("ctl/stdout")?, "renamed\n");
    fs::write("request", "echo copied\n")?;
    fs::copy("request", "ctl/exec")?;
    assert_eq!(fs::read_to_string("ctl/stdout")?, "copied\n");
    let mut file = OpenOptions::new().read(true).write(true).open("ctl/exec")?;
    file.write_all(b"echo one file\n")?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    assert!(text.contains("one file\\n"), "{}", text);
    Ok(())
}

fn refusals() -> io::Result<()> {
    refused(fs::write("ctl/exec", "no-such-program\n"), ENOENT);
    assert!(fs::read_to_string("ctl/error")?.contains("no-such-program"));
    assert!(fs::read_to_string("ctl/status")?.starts_with("127 failed"));
    fs::write("ctl/exec.tmp", "echo a | b")?;
    refused(fs::rename("ctl/exec.tmp", "ctl/exec"), EINVAL);
    fs::remove_file("ctl/exec.tmp")?;
    refused(fs::write("ctl/status", "x"), EACCES);
    refused(OpenOptions::new().write(true).create_new(true).open("ctl/exec"), EEXIST);
    // Without a newline the request ends with the close, whose errno std::fs drops: status tells.
    let mut file = File::create("ctl/exec")?;
    file.write_all(b"no-such-other")?;
    drop(file);
    assert!(fs::read_to_string("ctl/status")?.starts_with("127 failed"));
    assert!(fs::read_to_string("ctl/error")?.contains("no-such-other"));
    assert_eq!(fs::read_to_string("ctl/stdout")?, "");
    Ok(())
}

fn main() -> io::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("files") => files(),
        Some("requests") => requests(),
        _ => refusals(),
    }
}
