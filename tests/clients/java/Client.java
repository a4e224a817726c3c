// Writes a request, sees a refusal, reads the result; in the directory of a sandbox.
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;

class Client {
    interface Doing {
        void run() throws IOException;
    }

    static final Path EXEC = Path.of("ctl/exec");
    static final Path NEW = Path.of("ctl/exec.tmp");

    static void check(boolean holds, String words) {
        if (!holds) {
            throw new AssertionError(words);
        }
    }

    static void same(String want, String have) {
        check(want.equals(have), "want " + want + ", have " + have);
    }

    // Java has the errno's words only.
    static void refused(String words, Doing doing) {
        try {
            doing.run();
        } catch (IOException e) {
            check(e.toString().contains(words), e.toString());
            return;
        }
        check(false, "was not refused: " + words);
    }

    static String read(String path) throws IOException {
        return Files.readString(Path.of(path));
    }

    static void rename() throws IOException {
        Files.move(NEW, EXEC, StandardCopyOption.ATOMIC_MOVE);
    }

    static void files() throws IOException {
        Files.writeString(Path.of("f"), "by java");
        same("by java", read("f"));
        Files.createDirectories(Path.of("d/e"));
        Files.move(Path.of("f"), Path.of("d/e/f"));
        same("by java", read("d/e/f"));
        Files.delete(Path.of("d/e/f"));
        Files.delete(Path.of("d/e"));
        Files.delete(Path.of("d"));
    }

    static void requests() throws IOException {
        Files.writeString(EXEC, "sh -c 'echo from java; exit 5'\n");
        same("from java\n", read("ctl/stdout"));
        check(read("ctl/status").startsWith("5 exited"), read("ctl/status"));
        Files.writeString(NEW, "echo renamed");
        rename();
        same("renamed\n", read("ctl/stdout"));
        Files.writeString(NEW, "echo moved");
        Files.move(NEW, EXEC, StandardCopyOption.REPLACE_EXISTING);
        same("moved\n", read("ctl/stdout"));
        try (FileOutputStream out = new FileOutputStream("ctl/exec")) {
            out.write("echo streamed\n".getBytes());
        }
        same("streamed\n", read("ctl/stdout"));
    }

    static void refusals() throws IOException {
        refused("NoSuchFileException", () -> rename());
        refused("No such file or directory", () -> Files.writeString(EXEC, "no-such-program\n"));
        check(read("ctl/error").contains("no-such-program"), read("ctl/error"));
        check(read("ctl/status").startsWith("127 failed"), read("ctl/status"));
        Files.writeString(NEW, "echo a | b");
        refused("Invalid argument", () -> rename());
        Files.delete(NEW);
        refused("AccessDenied", () -> Files.writeString(Path.of("ctl/status"), "x"));
        refused("FileAlreadyExists",
            () -> Files.writeString(EXEC, "x", StandardOpenOption.CREATE_NEW));
        // Without a newline, the request ends with the close, and its refusal is the close's.
        FileOutputStream out = new FileOutputStream("ctl/exec");
        out.write("no-such-other".getBytes());
        refused("No such file or directory", () -> out.close());
        check(read("ctl/error").contains("no-such-other"), read("ctl/error"));
    }

    public static void main(String[] arguments) throws IOException {
        switch (arguments[0]) {
        case "files": files(); break;
        case "requests": requests(); break;
        default: refusals();
        }
    }
}
