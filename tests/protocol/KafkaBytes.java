import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Reads lines of "class version hex", lets Kafka's own class read and write the message, and prints what it wrote. */
public class KafkaBytes {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 3);
            String answer;
            try {
                answer = rewrite(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2]));
            } catch (ReflectiveOperationException | RuntimeException problem) {
                answer = "error " + problem.toString().replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    private static String rewrite(String className, short version, byte[] bytes) throws ReflectiveOperationException {
        Message message = (Message) Class.forName(className).getDeclaredConstructor().newInstance();
        ByteBuffer input = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(input), version);
        if (input.hasRemaining()) {
            return "error " + input.remaining() + " bytes were not read";
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer output = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(output), cache, version);
        return "bytes " + HexFormat.of().formatHex(output.array());
    }
}
